"""Reductions: many values of one axis to one. Their torch kernels are in `emit/kernels.py`.

The exact rules take the present, selected values of one group (or of the batch) as a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from rewardspec.ops.domain import CONDITION, Domain, interval
from rewardspec.ops.elementwise import greatest, least, root
from rewardspec.ops.exact import Inexact, bounded
from rewardspec.ops.real import Real, TooClose, real

ZERO = Fraction(0)


@dataclass(frozen=True)
class Reduction:
    """One reduction. `exact(values, parameter)` gives None where the result is missing.

    domain(domain of what is reduced, whether there may be no value at all).
    """

    name: str
    exact: Callable
    domain: Callable[[Domain, bool], Domain]
    missing_when_empty: bool = False
    keeps_level: bool = False


REDUCTIONS: dict[str, Reduction] = {}
SPREADS = ("std", "var", "std_others")  # whose parameter is the divisor's `ddof`


def _reduction(name: str, domain, **rest):
    def declare(exact):
        REDUCTIONS[name] = Reduction(name, exact, domain, **rest)
        return exact

    return declare


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


def _total(values):
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


def _are_one(values) -> bool:
    """Whether all are the same, as far as a look at them shows."""
    return all(v is values[0] or (isinstance(v, Fraction) and v == values[0]) for v in values)


@_reduction("mean", _hull, missing_when_empty=True)
def _mean(values, _):
    if not values:
        return None
    return values[0] if _are_one(values) else _total(values) / len(values)


@_reduction("sum", _any_number)
def _sum(values, _):
    return _total(values) if values else ZERO


@_reduction("var", _variance)
def _var(values, ddof):
    """Fewer than two values have no spread, at any divisor; nor have more than it leaves room for."""
    if len(values) < 2 or len(values) <= ddof:
        return ZERO
    if _are_one(values):
        return ZERO
    mean = _mean(values, None)
    return _total([_square(v - mean) for v in values]) / (len(values) - ddof)


def _square(x):
    try:
        return x * x
    except Inexact:  # too many roots to write out
        return real("*", x, x)


@_reduction("std", _spread)
def _std(values, ddof):
    variance = _var(values, ddof)
    return math.sqrt(variance) if isinstance(variance, float) else root(variance)


@_reduction(
    "std_others", lambda x, empty: _spread(x, empty).or_missing(empty), missing_when_empty=True, keeps_level=True
)
def _std_others(values, ddof):
    """For each value the deviation of the others."""
    return [_std(values[:i] + values[i + 1 :], ddof) for i in range(len(values))]


@_reduction("min", _same, missing_when_empty=True)
def _min(values, _):
    return least(values) if values else None


@_reduction("max", _same, missing_when_empty=True)
def _max(values, _):
    return greatest(values) if values else None


@_reduction("count", lambda x, empty: interval(ZERO if empty else Fraction(1), inf))
def _count(values, _):
    return Fraction(len(values))


@_reduction("any", lambda x, empty: CONDITION)
def _any(values, _):
    return Fraction(any(v == 1 for v in values))


@_reduction("all", lambda x, empty: CONDITION)
def _all(values, _):
    return Fraction(all(v == 1 for v in values))


@_reduction("quantile", _hull, missing_when_empty=True)
def _quantile(values, q):
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
    missing_when_empty=True,
    keeps_level=True,
)
def _rank(values, _):
    """The rank of each value: 1 is least, ties share the lower."""
    ordered = sorted(values)
    return [Fraction(ordered.index(v) + 1) for v in values]
