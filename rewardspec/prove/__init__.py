"""What follows from a spec: counts, proofs, differences."""
