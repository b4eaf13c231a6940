"""The registry of formats: one for each file in `formats/`, found by import."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from rewardspec.logs import formats
from rewardspec.logs.format import Format


@cache
def registered() -> dict[str, Format]:
    """All formats by name, sorted by name."""
    modules = [import_module(f"{formats.__name__}.{module.name}") for module in iter_modules(formats.__path__)]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Format)]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}
