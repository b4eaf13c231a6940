"""The function that a spec compiles to, and the `Result` that it returns."""

from __future__ import annotations

import builtins
import importlib
import itertools
import linecache
import sys
import weakref
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from rewardspec.text.diagnostics import shorten
from rewardspec.text.html import html_table

if TYPE_CHECKING:  # `spec` imports this file; only compiled modules import torch
    import numpy as np
    from torch import Tensor

    from rewardspec.spec import Spec

    Values: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[object]
    Groups: TypeAlias = int | Tensor | np.ndarray[Any, Any] | Sequence[Hashable]

State: TypeAlias = Mapping[str, Any]  # name to a number, or to a list of [key, number]
FIRST = 8  # rollouts that a result shows


class Result(ABC):
    """What an advantage function returns for a batch of N rollouts in P groups.

    out = fn({"correct": [1, 0, 1, 1]}, groups=2)
    out.advantages  # tensor([0.7071, -0.7071, 0.0000, 0.0000])

    Rows are in the caller's order, groups in order of first appearance.
    advantages: [N], float32 or float64, on the device of the columns. Of a list level [M]: a value for each item,
        rollouts in the caller's order; `lengths` says how many each has.
    state: the spec's state after the batch, plain JSON, to be passed to the next call; None if the spec has no
        `state:`.
    """

    advantages: Tensor
    state: State | None = None

    @property
    @abstractmethod
    def rewards(self) -> dict[str, Tensor]:
        """Each component's shaped value, [N]; NaN where it was ignored."""

    @property
    @abstractmethod
    def shares(self) -> dict[str, Tensor] | None:
        """Each component's share of the advantage, [N]; None if the advantage is not a sum over components."""

    @property
    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """The current weight of each component: [] for the batch, or [P]."""

    @property
    @abstractmethod
    def total(self) -> Tensor | None:
        """The spec's `total`, or the weighted sum of the rewards, [N]; None if the spec cannot compute it."""

    @property
    @abstractmethod
    def kept(self) -> Tensor:
        """Whether each group is in the batch, [P]; other groups have advantage 0."""

    @property
    @abstractmethod
    def copies(self) -> Tensor:
        """How many copies of each group are in the batch, [P]: with `refill` 0 or more, else 1 if kept and 0 if not."""

    @property
    @abstractmethod
    def refilled(self) -> tuple[Tensor, Tensor]:
        """The row at each place of the refilled batch, [M], and its advantage there, [M]: for trainers that move rows.

        The copies of a group share its advantage. M is N if all groups have one size.
        """

    @property
    def lengths(self) -> dict[str, Tensor]:
        """List of the spec to [N], how many items each rollout has. Empty for a spec without lists."""
        return {}

    def nested(self) -> list[Any]:
        """The advantages as Python numbers: of a list level a list for each rollout, else a number."""
        found: list[Any] = self.advantages.tolist()
        return found

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Floats to log: `rollouts_without_signal`, `reward/NAME`, `share/NAME` ... One transfer from the device."""

    def __repr__(self) -> str:
        found = self.metrics()
        if not found:
            return "<Result of no rollouts>"
        rollouts, groups = len(next(iter(self.lengths.values()), self.advantages)), len(self.kept)
        return (
            f"<Result of {rollouts} rollout{'s' * (rollouts != 1)} in {groups} group{'s' * (groups != 1)}: "
            f"{found['groups_without_signal']:.0%} of the groups without signal>"
        )

    def _repr_html_(self) -> str:
        n = len(self.advantages)
        columns: dict[str, Tensor] = {"advantage": self.advantages}
        columns |= {f"reward {name}": values for name, values in self.rewards.items()}
        columns |= {f"share {name}": values for name, values in (self.shares or {}).items()}
        columns = {name: values for name, values in columns.items() if len(values) == n}  # some can be of list level
        listed = [values[:FIRST].tolist() for values in columns.values()]
        rows = [[i, *(f"{values[i]:.4g}" for values in listed)] for i in range(min(n, FIRST))]
        rows += [["...", *("" for _ in columns)]] if n > FIRST else []
        note = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics().items())
        what = next((name for name, lengths in self.lengths.items() if int(lengths.sum()) == n), "rollout")
        return html_table(f"{n} {what}s in {len(self.kept)} groups", [what, *columns], rows, note)


class AdvantageFunction:
    """The advantage function of a spec: `fn(columns, groups)` gives a `Result`.

    fn = rewardspec.compile("specs/gdpo/math.yaml")
    fn({"correct": [1, 0], "tokens": [900, 5000]}, groups=2).advantages

    source: the text of the module that runs, equal to `spec.python`. spec: the spec. RolloutError: the error that it
    raises, one class for all functions. It is pickled as its spec and compiled again when loaded.
    """

    spec: Spec
    source: str
    RolloutError: type[ValueError]

    def __init__(self, spec: Spec):
        self.spec, self.source = spec, spec.python
        filename = f"<rewardspec {shorten(spec.name)} {spec.fingerprint}>"
        module = load_module(self.source, filename)
        self.RolloutError = module.RolloutError
        self.module_function: Callable[..., Result] = module.advantages
        self.first_state: Callable[[], State] | None = getattr(module, "initial_state", None)
        self._module = module
        self.has_lists = hasattr(module, "LISTS")
        self.unread_lists = spec.declarations.lists.keys() - {*getattr(module, "LISTS", ())}
        self.apart: Callable[..., Result] | None = None  # the same function, hidden from `torch.compile`
        self.__name__, self.__doc__ = "advantages", module.advantages.__doc__
        # `torch.compile` imports the module of a function by its name
        module.__name__ = f"rewardspec_compiled_{next(_numbers)}"
        sys.modules[module.__name__] = module
        _latest[filename] = self
        weakref.finalize(self, _forget, module.__name__, filename)

    def __call__(
        self,
        columns: Mapping[str, Values],
        groups: Groups,
        *,
        step: int | None = None,
        total_steps: int | None = None,
        seed: int = 0,
        lengths: Mapping[str, Sequence[int] | Tensor] | None = None,
        state: State | None = None,
    ) -> Result:
        """The advantages of a batch of N rollouts.

        fn({"correct": [1, 0, 1, 1]}, groups=2).advantages

        columns: for each of `spec.columns` N numbers, or symbols; None and NaN are missing. groups: the size of every
        group, for rollouts ordered by group, or N ids. step, total_steps: the moment of training, for specs with
        schedules. seed: for specs with `refill`. lengths: N lengths for each list whose columns are flat; without it
        they hold a list for each rollout. state: for specs with `state:`, at first `initial_state()`, then the `state`
        of the result before; it is not changed. Raises RolloutError, which names column, rollout and group.
        """
        if state is not None and self.first_state is None:
            raise self.RolloutError("the spec has no state: call it without `state=`")
        carried: dict[str, Any] = {} if self.first_state is None else {"state": state}
        function = self.module_function
        if _is_watched():
            self.apart = self.apart or sys.modules["torch"].compiler.disable(function)
            function = self.apart
        if isinstance(lengths, Mapping) and self.unread_lists:  # ignored, as their columns are
            lengths = {name: given for name, given in lengths.items() if name not in self.unread_lists} or None
        if lengths is not None and not self.has_lists:
            raise self.RolloutError("lengths: the spec has no lists")
        if lengths is not None:
            carried["lengths"] = lengths
        return function(columns, groups, step=step, total_steps=total_steps, seed=seed, **carried)

    def ahead(
        self,
        columns: Mapping[str, Tensor],
        groups: int,
        *,
        step: int | None = None,
        total_steps: int | None = None,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The advantages, and whether they can be used; the host waits for neither.

        advantages, sound = fn.ahead(columns, groups=8)

        For CUDA graphs and `torch.compile(fullgraph=True)`: nothing looks at a value. columns: tensors of one device.
        groups: the size of every group. Returns [N] or [M], and a condition, []. Where it is false, the advantages
        mean nothing: call the function itself, which repairs values that differ by rounding or says what is wrong.
        Raises RolloutError for what is wrong whatever the values are, and for specs that need to look: with lists,
        `state:`, `refill`, ids, or statistics `by` a value, whose columns are not in host memory.
        """
        if self.first_state is not None:
            raise self.RolloutError("the spec has state, which the host keeps: call the function itself")
        module = self._module
        try:
            result = self.module_function.__wrapped__(  # type: ignore[attr-defined]  # set by `read_once`
                module.Unread(columns), groups, step=step, total_steps=total_steps, seed=seed
            )
        except module.OnHost:
            raise self.RolloutError("the spec needs to look at values: call the function itself") from None
        sound: Tensor = result.sound()
        return result.advantages, sound

    def in_host_memory(
        self, columns: Mapping[str, Values], options: Mapping[str, Any]
    ) -> tuple[dict[str, Values], dict[str, Any]] | None:
        """The columns and options of a call, with tensors of a device copied to host memory; None if there are none.

        All are copied together: the host waits once.
        """
        found, _, moved = self._module._in_host_memory(columns, 1, dict(options))
        return None if found.home is None else (found.columns, moved)

    def initial_state(self) -> State | None:
        """The state before the first batch; None if the spec has no `state:`.

        fn.initial_state()  # {"price": 0.1, "level_of": []}

        Plain JSON: a number for each state, or a list of [key, number], least recently seen first.
        """
        return None if self.first_state is None else self.first_state()

    def checked_state(self, state: State) -> State:
        """The same state, which a call would take. Raises RolloutError with all that is wrong with it."""
        if self.first_state is None:
            raise self.RolloutError("the spec has no state")
        self._module.State(state, self._module.STATE)
        return state

    def __repr__(self) -> str:
        return f"<advantages of {shorten(self.spec.name)} {self.spec.fingerprint}>"

    def _repr_html_(self) -> str:
        rows = [(name, column.level, column.domain) for name, column in self.spec.program.columns.items()]
        read = self.spec.columns
        reads = [row for row in rows if row[0] in read]
        columns = [state.declared.column for state in self.spec.program.states.values()]
        reads += [(f"{column.name} (state)", column.level, column.domain) for column in columns]
        title = f"advantages of {self.spec.name} {self.spec.fingerprint}"
        return html_table(title, ("column", "level", "domain"), reads)

    def __reduce__(self) -> tuple[type[AdvantageFunction], tuple[Spec]]:
        return AdvantageFunction, (self.spec,)


_numbers = itertools.count()
_latest: weakref.WeakValueDictionary[str, AdvantageFunction] = weakref.WeakValueDictionary()  # by the name of its text


def _forget(module: str, filename: str) -> None:
    """Let go of the module of a function that is gone, and of its text, unless a newer function has the same."""
    sys.modules.pop(module, None)
    if filename not in _latest:
        linecache.cache.pop(filename, None)


def _is_watched() -> bool:
    """Whether `torch.compile` sees what is called now.

    The branches of an advantage function depend on its columns, so the compiler would spend minutes on small
    fragments. Hiding a function costs as much as five operations, so it is done only where it is needed.
    """
    if "torch._dynamo" not in sys.modules:
        return False
    torch: Any = sys.modules["torch"]
    if torch.compiler.is_compiling():
        return True
    callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)  # not in every version
    return callback is None or callback() is not None


def load_module(source: str, filename: str) -> ModuleType:
    """The module of a source text; tracebacks and debuggers can show its lines.

    It returns a `Result`. Its results and errors can be sent to other processes, which do not have the module: they
    are pickled as the package's own classes.
    """
    from rewardspec.emit.runtime.columns import RolloutError

    module = ModuleType("rewardspec_compiled")
    module.__file__ = filename
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(builtins.compile(source, filename, "exec"), module.__dict__)
    module.RolloutError = RolloutError  # type: ignore[attr-defined]  # any name can be set on a module
    for name in _SENT:
        if name in module.__dict__:
            module.__dict__[name].__reduce__ = _as_supported
    for name in ("ListResult", "Result"):  # `ListResult` is a subclass of the module's own `Result`
        if name in module.__dict__:
            module.__dict__[name] = _public(module.__dict__[name])
    return module


_SENT = {
    "Result": "result",
    "Batch": "batch",
    "Layout": "layout",
    "ListResult": "lists",
    "ListBatch": "lists",
    "IdBatch": "ids",
    "IdListBatch": "ids",
    "Items": "items",
    "Segments": "segments",
}  # classes of a module, and their modules in the package


def _public(own: type) -> type:
    """A module's `Result` class made a subclass of our `Result`, with its repr."""
    return ABCMeta(
        own.__name__, (own, Result), {"__module__": __name__, "__doc__": Result.__doc__, "__reduce__": _as_supported}
    )


@cache
def _received(name: str) -> type:
    """The class of results that come from other processes."""
    return _public(getattr(importlib.import_module(f"rewardspec.emit.runtime.{_SENT[name]}"), name))


def _as_supported(self: object) -> tuple[Callable[..., object], tuple[str, object]]:
    return _supported, (type(self).__name__, self.__getstate__())


def _supported(name: str, state: dict[str, object]) -> object:
    if name in ("Result", "ListResult"):
        kind = _received(name)
    else:
        kind = getattr(importlib.import_module(f"rewardspec.emit.runtime.{_SENT[name]}"), name)
    made: object = object.__new__(kind)
    made.__dict__.update(state)
    return made
