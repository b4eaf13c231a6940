"""Operators: what each one means exactly, where its results lie, and how torch computes it."""
