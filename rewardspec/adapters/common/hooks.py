"""Wrappers for functions of a trainer, installed when the trainer imports their modules."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType

Patches = Mapping[str, Callable[[ModuleType], None]]  # by module name; each is called with its module

MARK = "_rewardspec"  # the attribute of wrappers


def wrap_once(owner, name: str, wrap: Callable) -> None:
    """Replace `owner.name` by `wrap(original)`, once. Raises AttributeError if there is none."""
    original = getattr(owner, name)
    if not is_wrapped(original):
        wrapper = wraps(original)(wrap(original))
        setattr(wrapper, MARK, True)
        setattr(owner, name, wrapper)


def is_wrapped(function) -> bool:
    """Whether a function is a wrapper of `wrap_once`."""
    return getattr(function, MARK, False)


def patch_modules(patches: Patches) -> None:
    """Patch modules: imported ones at once, others when they are imported."""
    if not any(isinstance(finder, _AfterImport) and finder.patches is patches for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(patches))
    for name, patch in patches.items():
        if name in sys.modules:
            patch(sys.modules[name])


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls the patch of a module once the module has been imported."""

    def __init__(self, patches: Patches):
        self.patches = patches
        self.sought: set[str] = set()  # being searched: two finders that call all others would recurse

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.patches or fullname in self.sought:
            return None
        self.sought.add(fullname)
        try:
            return self._found(fullname, path, target)
        finally:
            self.sought.discard(fullname)

    def _found(self, fullname, path, target):
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # Python skips finders without it
            spec = find(fullname, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader.exec_module = _then(spec.loader.exec_module, self.patches[fullname])
                return spec
        return None


def _then(run: Callable, patch: Callable) -> Callable:
    def exec_module(module):
        run(module)
        patch(module)

    return exec_module
