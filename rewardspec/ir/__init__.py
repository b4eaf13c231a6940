"""The graph a spec comes down to: typed nodes, equal nodes one node."""
