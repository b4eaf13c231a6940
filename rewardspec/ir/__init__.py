"""The graph of a compiled spec: typed nodes; equal expressions are one node."""
