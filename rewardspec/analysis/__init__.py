"""What can be said of a spec before any training."""
