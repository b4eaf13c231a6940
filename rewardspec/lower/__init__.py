"""From declarations to the nodes of a graph."""
