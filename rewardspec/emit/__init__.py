"""Graph to torch source, and source to function."""
