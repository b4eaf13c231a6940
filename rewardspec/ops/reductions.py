"""Reductions over a group or the batch: `std([0, 1 | 1, 3]) = [0.7071, 1.4142]`.

The exact rules take a list of the present, selected values of one group, or of the batch. The torch kernels are in
`emit/runtime/statistics.py`.
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
ARGUMENTS = {
    "over": "what is reduced: `group` by default, `batch`, `components`, or `rollout` for the items of a list",
    "where": "a condition: only values where it holds take part",
    "by": "subdivides the group, or the batch, by equal values: `mean(x, by=task)` has a value for each rollout",
    "ddof": "0 or 1, by default that of `numerics`: `std` and `var` divide by the count less this",
}


def _function(
    about: str, example: str, *parameters: str, keywords: tuple[str, ...] = (), rest: bool = False
) -> Function:
    return Function(("x", *parameters), 1 + len(parameters), (*REDUCED_BY, *keywords), rest, about, example)


def _reduction(
    name: str, domain: Callable[[Domain, bool], Domain], **rest: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def with_rule(exact: Callable[..., Any]) -> Callable[..., Any]:
        declare(Reduction(name=name, exact=exact, domain=domain, **rest))
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
        except Inexact:  # too large to keep exactly
            total = real("+", total, value)
    return total


def _are_one(values: Sequence[Any]) -> bool:
    """Whether all are one object or equal Fractions: a cheap test that equal numbers may fail."""
    return all(v is values[0] or (isinstance(v, Fraction) and v == values[0]) for v in values)


@_reduction(
    "min",
    _same,
    function=_function(
        "the least of a group; of several arguments, elementwise", "min([3, 1 | 2, missing]) = [1, 2]", rest=True
    ),
    missing_when_empty=True,
)
def _min(values: list[Any], _: Any) -> Any:
    return least(values) if values else None


@_reduction(
    "max",
    _same,
    function=_function(
        "the greatest of a group; of several arguments, elementwise", "max([3, 1 | 2, missing]) = [3, 2]", rest=True
    ),
    missing_when_empty=True,
)
def _max(values: list[Any], _: Any) -> Any:
    return greatest(values) if values else None


@_reduction(
    "mean",
    _hull,
    function=_function("mean of the present values; missing if there are none", "mean([1, 4 | 2, missing]) = [2.5, 2]"),
    missing_when_empty=True,
)
def _mean(values: list[Any], _: Any) -> Any:
    if not values:
        return None
    return values[0] if _are_one(values) else _total(values) / len(values)


@_reduction(
    "sum",
    _any_number,
    function=_function("sum of the present values; 0 if there are none", "sum([1, 4 | 2, missing]) = [5, 2]"),
)
def _sum(values: list[Any], _: Any) -> Any:
    return _total(values) if values else ZERO


@_reduction(
    "var",
    _variance,
    function=_function(
        "variance, 0 without spread; the divisor is count - ddof", "var([0, 1 | 1, 3]) = [0.5, 2]", keywords=("ddof",)
    ),
    parameter="ddof",
)
def _var(values: list[Any], ddof: Any) -> Any:
    """0 for fewer than two values, and where the divisor, count - ddof, is not positive."""
    if len(values) < 2 or len(values) <= ddof:
        return ZERO
    if _are_one(values):
        return ZERO
    mean = _mean(values, None)
    return _total([_square(v - mean) for v in values]) / (len(values) - ddof)


def _square(x: Any) -> Any:
    try:
        return x * x
    except Inexact:  # too many roots to keep exactly
        return real("*", x, x)


@_reduction(
    "std",
    _spread,
    function=_function(
        "standard deviation, 0 without spread; the divisor is count - ddof",
        "std([0, 1 | 1, 3]) = [0.7071, 1.4142]",
        keywords=("ddof",),
    ),
    parameter="ddof",
)
def _std(values: list[Any], ddof: Any) -> Any:
    variance = _var(values, ddof)
    return math.sqrt(variance) if isinstance(variance, float) else root(variance)


@_reduction(
    "std_others",
    lambda x, empty: _spread(x, empty).or_missing(empty),
    function=_function(
        "for each value the standard deviation of the other values",
        "std_others([0, 1, 3]) = [1.4142, 2.1213, 0.7071]",
        keywords=("ddof",),
    ),
    parameter="ddof",
    missing_when_empty=True,
    keeps_level=True,
)
def _std_others(values: list[Any], ddof: Any) -> Any:
    return [_std(values[:i] + values[i + 1 :], ddof) for i in range(len(values))]


@_reduction(
    "count",
    lambda x, empty: interval(ZERO if empty else Fraction(1), inf),
    function=_function("the number of present values", "count([5, missing | 1, 1]) = [1, 2]"),
)
def _count(values: list[Any], _: Any) -> Any:
    return Fraction(len(values))


@_reduction(
    "any",
    lambda x, empty: CONDITION,
    function=_function("whether at least one condition holds", "any([0, 1 | 0, 0]) = [1, 0]"),
    boolean=True,
    conditions=(0, 1),
    decides=Fraction(1),
)
def _any(values: list[Any], _: Any) -> Any:
    return Fraction(any(v == 1 for v in values))


@_reduction(
    "all",
    lambda x, empty: CONDITION,
    function=_function("whether every condition holds", "all([0, 1 | 1, 1]) = [0, 1]"),
    boolean=True,
    conditions=(0, 1),
    decides=Fraction(0),
)
def _all(values: list[Any], _: Any) -> Any:
    return Fraction(all(v == 1 for v in values))


@_reduction(
    "quantile",
    _hull,
    function=_function(
        "linear interpolation between the two nearest values", "quantile([1, 2, 3, 10], 0.25) = [1.75]", "q"
    ),
    parameter="q",
    missing_when_empty=True,
)
def _quantile(values: list[Any], q: Any) -> Any:
    """Linear interpolation, the default of `numpy.quantile` and `torch.quantile`."""
    if not values:
        return None
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@_reduction(
    "kth",
    lambda x, empty: x.or_missing(),
    function=_function("the k-th largest value; missing if there are fewer", "kth([1, 2, 3 | 5, 5], 2) = [2, 5]", "k"),
    parameter="k",
    missing_when_empty=True,
)
def _kth(values: list[Any], k: Any) -> Any:
    """Equal values count as often as they are there. The language reads `kth(x, 1)` as `max(x)`."""
    return sorted(values, reverse=True)[int(k) - 1] if k <= len(values) else None


@_reduction(
    "rank",
    lambda x, empty: interval(Fraction(1), inf, missing=empty),
    function=_function("rank from 1, the least; ties share the lowest rank", "rank([0.5, 2, 0.5]) = [1, 3, 1]"),
    missing_when_empty=True,
    keeps_level=True,
)
def _rank(values: list[Any], _: Any) -> Any:
    ordered = sorted(values)
    return [Fraction(ordered.index(v) + 1) for v in values]
