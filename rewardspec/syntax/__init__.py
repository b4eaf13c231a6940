"""YAML and expression text to syntax trees."""
