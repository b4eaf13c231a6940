"""One command per file: its function `command` has the options as parameters and the help as docstring."""
