"""The keys that a spec may have, and the declarations that it makes."""
