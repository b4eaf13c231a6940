"""Compiled specs inside trainers. Adapters carry data in and out; all maths stays in the compiled function."""
