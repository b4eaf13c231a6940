"""`Reward`: what a reward function says of itself; `@reward` makes a function one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isinf
from typing import TYPE_CHECKING, Annotated, Any

from rewardspec.ops.domain import Domain, finite, interval

if TYPE_CHECKING:  # pydantic takes a tenth of a second, and is for options that are given
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_MISSING = inspect.Parameter.empty


class ScoringError(ValueError):
    """Rollouts that cannot be scored: a column that is not there, a malformed ground truth. The message names rows."""


class BadReference(ValueError):
    """A ground truth that nothing can be scored against: a fault of the data, never of the model.

    rows: of a function of many rollouts, what is wrong with each ground truth, by its place.
    """

    def __init__(self, reason: str, rows: Mapping[int, str] = {}):
        super().__init__(reason)
        self.rows = dict(rows)


class Within:
    """What an option may be: `Annotated[float, Within(gt=0, le=3600)]`, in the words of `pydantic.Field`."""

    def __init__(self, **limits: Any):
        self.limits = limits

    def __get_pydantic_core_schema__(self, of: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic import Field

        return handler.generate_schema(Annotated[of, Field(**self.limits)])


def each(read: Callable[..., Any], given: Iterable[Any]) -> list[Any]:
    """`read` of every ground truth. Raises BadReference that tells of all that are malformed."""
    found, bad = [], {}
    for i, one in enumerate(given):
        try:
            found.append(read(one))
        except BadReference as error:
            bad[i] = str(error)
    refuse(bad)
    return found


def refuse(bad: Mapping[int, str]) -> None:
    """Raise BadReference if there are any: what is wrong, by the place of the rollout."""
    if bad:
        first, more = min(bad), f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise BadReference(f"rollout {first}: {bad[first]}{more}", bad)


@dataclass(frozen=True, eq=False)
class Reward:
    """A reward function.

    function: takes `inputs` by position, then its options by name. It gives one number for one rollout, or
    for `many` takes lists, one value a rollout, and gives a list; None is a value that could not be measured.
    A completion can be any text whatever; BadReference is raised for a ground truth that is malformed.
    inputs: what it reads of a rollout: `prompt` and `completion`, the texts, and columns of the data set. One whose
    parameter has a default is None where there is no such column.
    domain: the values it can give, under given options; ValueError for options that contradict each other.
    expression: the same in the spec language, of a function of what trainers measure themselves.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    domain: Callable[..., Domain]
    many: bool = False
    expression: str | None = None

    @property
    def about(self) -> str:
        """The first sentence of the docstring, and the source that its last line names."""
        lines = (inspect.getdoc(self.function) or "").strip().splitlines()
        source = f" ({lines[-1].removeprefix('Source: ').rstrip('.')})" if lines[-1].startswith("Source: ") else ""
        return lines[0].rstrip(".") + source

    @property
    def signature(self) -> str:
        """As a spec would write it, with every option and what it is where nothing is said."""
        options = [
            name if default is _MISSING else f"{name}={_written(default)}" for name, default in self.defaults.items()
        ]
        return f"{self.name}({', '.join(options)})" if options else self.name

    @cached_property
    def optional(self) -> frozenset[str]:
        """The inputs that need not be there."""
        parameters = inspect.signature(self.function).parameters.values()
        given = zip(self.inputs, (p for p in parameters if p.kind is not p.KEYWORD_ONLY), strict=True)
        return frozenset(name for name, parameter in given if parameter.default is not parameter.empty)

    @cached_property
    def model(self) -> type[BaseModel]:
        """The options, from the function's keyword-only parameters."""
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
        """Every option and what it is where nothing is said: `inspect.Parameter.empty` for one that has to be said."""
        parameters = inspect.signature(self.function).parameters.values()
        return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}

    def options(self, given: Mapping[str, object]) -> dict[str, object]:
        """Every option, checked. Raises pydantic's ValidationError, which names those that are wrong."""
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
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function known as `name`, which is `family.function`; the function itself stays as it is.

    domain: a tuple of all values, or a function of the options. inputs: the function's own positional
    parameters where nothing is said.
    """
    allowed = domain if callable(domain) else lambda **_: finite([Fraction(repr(value)) for value in domain])

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        _KNOWN[name] = Reward(name, function, inputs or tuple(own), allowed, many, expression)
        return function

    return register


_KNOWN: dict[str, Reward] = {}


def known() -> tuple[Reward, ...]:
    """The reward functions of all families that have been imported."""
    return tuple(_KNOWN.values())


def between(lo: float, hi: float) -> Domain:
    """The numbers from `lo` to `hi`, exactly as they are written; an infinite end is none."""
    ends = [end if isinf(end) else Fraction(repr(end)) for end in (lo, hi)]
    return interval(ends[0], ends[1])
