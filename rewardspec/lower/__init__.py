"""Lowering: declarations to the nodes of a graph."""
