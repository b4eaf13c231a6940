"""One finding per file: its page, then the function that checks for it."""
