"""What a spec may say, and what it declares."""
