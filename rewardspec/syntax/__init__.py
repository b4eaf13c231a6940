"""Text and YAML to syntax trees."""
