"""Reductions: many values of one axis to one. Their torch kernels are in `emit/runtime/statistics.py`.

The exact rules take the present, selected values of one group (or of the batch) as a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf
from typing import Any

from rewardspec.ops.domain import CONDITION, Domain, interval
from rewardspec.ops.elementwise import greatest, least
from rewardspec.ops.exact import Inexact, bounded
from rewardspec.ops.operator import REDUCTIONS as REDUCTIONS
from rewardspec.ops.operator import Function, Reduction, declare
from rewardspec.ops.real import Real, TooClose, real, root

ZERO = Fraction(0)
REDUCED_BY = ("over", "where", "by")  # keywords of every reduction


def _function(about: str, *parameters: str, keywords: tuple[str, ...] = (), rest: bool = False) -> Function:
    return Function(("x", *parameters), 1 + len(parameters), (*REDUCED_BY, *keywords), rest=rest, about=about)


def _reduction(
    name: str, domain: Callable[[Domain, bool], Domain], **said: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def with_rule(exact: Callable[..., Any]) -> Callable[..., Any]:
        declare(Reduction(name=name, exact=exact, domain=domain, **said))
        return exact

    return with_rule


def _hull(x: Domain, empty: bool) -> Domain:
    return interval(x.lo, x.hi, x.lo_open, x.hi_open, missing=empty)


def _same(x: Domain, empty: bool) -> Domain:
    return x.or_missing(empty)


def _any_number(x: Domain, empty: bool) -> Domain:
    if x.constant == 0:
        return x
    return interval(-inf if x.lo < 0 else ZERO, inf if x.hi > 0 else ZERO)


def _variance(x: Domain, empty: bool) -> Domain:
    return interval(ZERO, (x.hi - x.lo) ** 2 / 2 if x.bounded else inf)


def _spread(x: Domain, empty: bool) -> Domain:
    return interval(ZERO, x.hi - x.lo if x.bounded else inf)


def _total(values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        try:
            total = total + value
            total = total if isinstance(total, Real | float) else bounded(total)
        except TooClose:
            raise
        except Inexact:  # too large to write out
            total = real("+", total, value)
    return total


def _are_one(values: Sequence[Any]) -> bool:
    """Whether all are the same, as far as a look at them shows."""
    return all(v is values[0] or (isinstance(v, Fraction) and v == values[0]) for v in values)


@_reduction(
    "min",
    _same,
    function=_function("least of a group; of several arguments elementwise", rest=True),
    missing_when_empty=True,
)
def _min(values: list[Any], _: Any) -> Any:
    return least(values) if values else None


@_reduction(
    "max",
    _same,
    function=_function("greatest of a group; of several arguments elementwise", rest=True),
    missing_when_empty=True,
)
def _max(values: list[Any], _: Any) -> Any:
    return greatest(values) if values else None


@_reduction("mean", _hull, function=_function("of what is present, missing of nothing"), missing_when_empty=True)
def _mean(values: list[Any], _: Any) -> Any:
    if not values:
        return None
    return values[0] if _are_one(values) else _total(values) / len(values)


@_reduction("sum", _any_number, function=_function("of what is present, 0 of nothing"))
def _sum(values: list[Any], _: Any) -> Any:
    return _total(values) if values else ZERO


@_reduction(
    "var",
    _variance,
    function=_function("variance, 0 without spread; divisor: count less ddof", keywords=("ddof",)),
    parameter="ddof",
)
def _var(values: list[Any], ddof: Any) -> Any:
    """Fewer than two values have no spread, at any divisor; nor have more than it leaves room for."""
    if len(values) < 2 or len(values) <= ddof:
        return ZERO
    if _are_one(values):
        return ZERO
    mean = _mean(values, None)
    return _total([_square(v - mean) for v in values]) / (len(values) - ddof)


def _square(x: Any) -> Any:
    try:
        return x * x
    except Inexact:  # too many roots to write out
        return real("*", x, x)


@_reduction(
    "std",
    _spread,
    function=_function("standard deviation, 0 without spread; divisor: count less ddof", keywords=("ddof",)),
    parameter="ddof",
)
def _std(values: list[Any], ddof: Any) -> Any:
    variance = _var(values, ddof)
    return math.sqrt(variance) if isinstance(variance, float) else root(variance)


@_reduction(
    "std_others",
    lambda x, empty: _spread(x, empty).or_missing(empty),
    function=_function("for each value the standard deviation of the others", keywords=("ddof",)),
    parameter="ddof",
    missing_when_empty=True,
    keeps_level=True,
)
def _std_others(values: list[Any], ddof: Any) -> Any:
    """For each value the deviation of the others."""
    return [_std(values[:i] + values[i + 1 :], ddof) for i in range(len(values))]


@_reduction(
    "count",
    lambda x, empty: interval(ZERO if empty else Fraction(1), inf),
    function=_function("how many are present"),
)
def _count(values: list[Any], _: Any) -> Any:
    return Fraction(len(values))


@_reduction(
    "any",
    lambda x, empty: CONDITION,
    function=_function("whether one condition holds at least"),
    boolean=True,
    conditions=(0, 1),
    decides=Fraction(1),
)
def _any(values: list[Any], _: Any) -> Any:
    return Fraction(any(v == 1 for v in values))


@_reduction(
    "all",
    lambda x, empty: CONDITION,
    function=_function("whether no condition fails"),
    boolean=True,
    conditions=(0, 1),
    decides=Fraction(0),
)
def _all(values: list[Any], _: Any) -> Any:
    return Fraction(all(v == 1 for v in values))


@_reduction(
    "quantile",
    _hull,
    function=_function("linear between the two nearest values", "q"),
    parameter="q",
    missing_when_empty=True,
)
def _quantile(values: list[Any], q: Any) -> Any:
    """Linear between the two nearest values, as NumPy and torch have it."""
    if not values:
        return None
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@_reduction(
    "rank",
    lambda x, empty: interval(Fraction(1), inf, missing=empty),
    function=_function("1 is least, ties share the lower"),
    missing_when_empty=True,
    keeps_level=True,
)
def _rank(values: list[Any], _: Any) -> Any:
    """The rank of each value: 1 is least, ties share the lower."""
    ordered = sorted(values)
    return [Fraction(ordered.index(v) + 1) for v in values]
