"""Files of rollouts: rows, the columns that a spec reads, and output files."""
