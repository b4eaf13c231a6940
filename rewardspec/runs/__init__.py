"""Runs that were logged, replayed under specs: health, components, audit, and one spec against another."""
