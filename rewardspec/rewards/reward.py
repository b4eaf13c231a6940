"""`Reward`: a reward function with its inputs, domain and options. `@reward` registers one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isinf
from typing import TYPE_CHECKING, Annotated, Any

from rewardspec.ops.domain import Domain, finite, interval

if TYPE_CHECKING:  # importing pydantic takes 0.1 s: only given options need it
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_MISSING = inspect.Parameter.empty


class ScoringError(ValueError):
    """Rollouts that cannot be scored, for a missing column or a malformed ground truth. The message names rows."""


class BadReference(ValueError):
    """A malformed ground truth: a fault of the data, never of the model.

    rows: for a function of many rollouts, the reason for each malformed ground truth, by index.
    """

    def __init__(self, reason: str, rows: Mapping[int, str] = {}):
        super().__init__(reason)
        self.rows = dict(rows)


class Within:
    """The limits of an option, as for `pydantic.Field`: `Annotated[float, Within(gt=0, le=3600)]`."""

    def __init__(self, **limits: Any):
        self.limits = limits

    def __get_pydantic_core_schema__(self, of: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic import Field

        return handler.generate_schema(Annotated[of, Field(**self.limits)])


def each(read: Callable[..., Any], given: Iterable[Any]) -> list[Any]:
    """`read` of every ground truth. Raises BadReference with all malformed ones."""
    found, bad = [], {}
    for i, one in enumerate(given):
        try:
            found.append(read(one))
        except BadReference as error:
            bad[i] = str(error)
    refuse(bad)
    return found


def refuse(bad: Mapping[int, str]) -> None:
    """Raise BadReference if there are bad rollouts. bad: reasons by index."""
    if bad:
        first, more = min(bad), f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise BadReference(f"rollout {first}: {bad[first]}{more}", bad)


@dataclass(frozen=True)
class Call:
    """A request that a reward function would send to an endpoint.

    name: a hash in hexadecimal, the same for the same request. model: that is asked. prompt: its tokens, about.
    completion: the most tokens of the answer, None for no end. recalled: whether a cache has the answer. keeps: whether
    that cache is in use.
    """

    name: str
    model: str
    prompt: int
    completion: int | None
    recalled: bool
    keeps: bool


@dataclass(frozen=True, eq=False)
class Reward:
    """A reward function.

    function: takes `inputs` by position and options by name, and returns the number of one rollout. With `many` each
    input is a list with a value for each rollout, and so is the result. None means that it could not be measured. A
    completion can be any text; a malformed ground truth raises BadReference.
    inputs: the fields of a rollout that it reads: the texts `prompt` and `completion`, and columns of the data set. An
    input whose parameter has a default is None if there is no such column.
    domain: the possible values, given the options; raises ValueError for options that contradict each other.
    expression: the same function in the spec language, if it only reads columns that trainers measure.
    items: an input with a list for each rollout. Where the column's level is a list, the function is given it and
    returns a list, a value for each item; else it is not given it. `domain` gets `listed`, which of the two it is.
    calls: for a function that asks endpoints: takes what `function` takes, sends nothing, and returns its `Call`s.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    domain: Callable[..., Domain]
    many: bool = False
    expression: str | None = None
    items: str | None = None
    calls: Callable[..., list[Call]] | None = None

    @property
    def about(self) -> str:
        """The first line of the docstring, and the source from its last line."""
        lines = (inspect.getdoc(self.function) or "").strip().splitlines()
        source = f" ({lines[-1].removeprefix('Source: ').rstrip('.')})" if lines[-1].startswith("Source: ") else ""
        return lines[0].rstrip(".") + source

    @property
    def signature(self) -> str:
        """The name with all options and their defaults, as a spec would write it."""
        options = [
            name if default is _MISSING else f"{name}={_written(default)}" for name, default in self.defaults.items()
        ]
        return f"{self.name}({', '.join(options)})" if options else self.name

    @cached_property
    def optional(self) -> frozenset[str]:
        """The inputs that can be missing."""
        parameters = inspect.signature(self.function).parameters.values()
        given = zip(self.inputs, (p for p in parameters if p.kind is not p.KEYWORD_ONLY), strict=True)
        return frozenset(name for name, parameter in given if parameter.default is not parameter.empty)

    @cached_property
    def model(self) -> type[BaseModel]:
        """The model of the options, from the function's keyword-only parameters."""
        from pydantic import ConfigDict, create_model

        fields: dict[str, Any] = {
            name: (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in inspect.signature(self.function, eval_str=True).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        settings = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
        return create_model(self.name, __config__=settings, **fields)

    @cached_property
    def defaults(self) -> dict[str, object]:
        """The default of each option; `inspect.Parameter.empty` for a required option."""
        parameters = inspect.signature(self.function).parameters.values()
        return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}

    def options(self, given: Mapping[str, object]) -> dict[str, object]:
        """All options, checked. Raises pydantic's ValidationError, which names the wrong ones."""
        if not given and _MISSING not in self.defaults.values():
            return dict(self.defaults)
        read = self.model.model_validate(dict(given))
        return {name: getattr(read, name) for name in self.model.model_fields}


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, bool | None):
        return "null" if value is None else str(value).lower()
    return str(value)


def reward(
    name: str,
    *,
    domain: Callable[..., Domain] | tuple[float, ...],
    inputs: tuple[str, ...] | None = None,
    many: bool = False,
    expression: str | None = None,
    items: str | None = None,
    calls: Callable[..., list[Call]] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under `name`, which is `family.function`, without changing the function.

    domain: a tuple of all values, or a function of the options. inputs: by default the positional parameters.
    """
    allowed = domain if callable(domain) else lambda **_: finite([Fraction(repr(value)) for value in domain])

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        _KNOWN[name] = Reward(name, function, inputs or tuple(own), allowed, many, expression, items, calls)
        return function

    return register


_KNOWN: dict[str, Reward] = {}


def known() -> tuple[Reward, ...]:
    """The reward functions of the families imported so far."""
    return tuple(_KNOWN.values())


def between(lo: float, hi: float) -> Domain:
    """The interval from `lo` to `hi`, with their decimal digits as exact numbers; ends may be infinite."""
    ends = [end if isinf(end) else Fraction(repr(end)) for end in (lo, hi)]
    return interval(ends[0], ends[1])
