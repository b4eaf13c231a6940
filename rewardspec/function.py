"""The function that a spec compiles to: a module of emitted source, loaded from the text that `compile` prints."""

from __future__ import annotations

import builtins
import importlib
import itertools
import linecache
import sys
import weakref
from types import ModuleType
from typing import TYPE_CHECKING

from rewardspec.text.diagnostics import shorten

if TYPE_CHECKING:  # a spec compiles itself, so it comes above
    from rewardspec.spec import Spec


class AdvantageFunction:
    """The advantage function of a spec: `fn(columns, groups, *, step, total_steps, seed)` gives a `Result`.

    source: the text of the module that runs. spec: the spec. RolloutError: what it raises, one class for all.
    It is pickled as its spec, and compiled anew.
    """

    def __init__(self, spec: Spec):
        self.spec, self.source = spec, spec.python
        module = load_module(self.source, f"<rewardspec {shorten(spec.name)} {spec.fingerprint}>")
        self.RolloutError = module.RolloutError
        self.module_function = module.advantages
        # The same, which `torch.compile` leaves as it is: it looks at its columns at every turn, so what could be
        # compiled are scraps, and that would take minutes. Made once the compiler has been imported, which takes long.
        self.apart = None
        self.__name__, self.__doc__ = "advantages", module.advantages.__doc__
        # `torch.compile` imports the module of what it compiles by name
        module.__name__ = f"rewardspec_compiled_{next(_numbers)}"
        sys.modules[module.__name__] = module
        weakref.finalize(self, sys.modules.pop, module.__name__, None)

    def __call__(self, columns, groups, *, step=None, total_steps=None, seed=0):
        if self.apart is None and "torch._dynamo" in sys.modules:
            self.apart = sys.modules["torch"].compiler.disable(self.module_function)
        function = self.apart or self.module_function
        return function(columns, groups, step=step, total_steps=total_steps, seed=seed)

    def __repr__(self) -> str:
        return f"<advantages of {shorten(self.spec.name)} {self.spec.fingerprint}>"

    def __reduce__(self):
        return AdvantageFunction, (self.spec,)


_numbers = itertools.count()


def load_module(source: str, filename: str) -> ModuleType:
    """A module from its source, with lines that tracebacks and debuggers can show.

    What it returns and raises can be sent to other processes, which have no such module: as the package's own.
    """
    from rewardspec.emit.runtime.columns import RolloutError

    module = ModuleType("rewardspec_compiled")
    module.__file__ = filename
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(builtins.compile(source, filename, "exec"), module.__dict__)
    module.RolloutError = RolloutError
    for name in _SENT:
        if name in module.__dict__:
            module.__dict__[name].__reduce__ = _as_supported
    return module


_SENT = {
    "Result": "result",
    "Batch": "batch",
    "Layout": "layout",
}  # classes of a module, and where the package has them


def _as_supported(self):
    return _supported, (type(self).__name__, self.__getstate__())


def _supported(name: str, state: dict):
    kind = getattr(importlib.import_module(f"rewardspec.emit.runtime.{_SENT[name]}"), name)
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made
