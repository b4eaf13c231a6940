"""One command a file: `command` is what the file is named after.

Its signature is the options, its docstring the help.
"""
