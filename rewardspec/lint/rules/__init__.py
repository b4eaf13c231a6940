"""One finding a file: its page on top, then what looks for it."""
