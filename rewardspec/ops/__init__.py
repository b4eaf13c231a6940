"""Operators: the exact value, the domain and the torch source of each."""
