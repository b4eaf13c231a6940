"""A file to a program: the document, its declarations and definitions."""
