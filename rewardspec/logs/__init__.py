"""Rollouts in files: read, written, taken as columns."""
