"""Formats of logged rollouts, one a file: what a trainer writes, and how it is read."""
