"""Names that OpenRLHF imports; the kernels need a GPU."""
