"""Code that the adapters of all trainers share. Nothing here imports torch or a trainer."""
