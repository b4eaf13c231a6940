"""Text: files and places in them, what is said about them, and how others' text is shown."""
