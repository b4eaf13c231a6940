"""Pages: one HTML file each, which opens from disk and asks no network for anything."""
