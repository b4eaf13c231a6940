"""Printing: lines, tables, SARIF, GitHub annotations, and the tables of each command."""
