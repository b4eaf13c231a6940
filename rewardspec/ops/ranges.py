"""Domains of results from domains of operands: `[0, 1] + [2, 3]` is `[2, 4]`. Operands are present here.

`elementwise_domain` adds the rule of all operators: missing in, missing out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import inf

from rewardspec.ops.domain import ANY, CONDITION, Bound, Domain, interval
from rewardspec.ops.operator import Elementwise


def _times(x: Bound, y: Bound) -> Bound:
    return Fraction(0) if x == 0 or y == 0 else x * y


def _outward(x: float, towards: float) -> Bound:
    return x if math.isinf(x) else Fraction(math.nextafter(math.nextafter(x, towards), towards))


def image(function: Callable[[float], float], lowest: Bound, highest: Bound) -> Callable[[Domain], Domain]:
    """Domain rule of an increasing function with values within [lowest, highest]."""

    def value(x: Bound) -> float:
        try:
            return function(float(x))
        except OverflowError:
            return inf if x > 0 else float(lowest)

    def rule(a: Domain) -> Domain:
        lo = max(_outward(value(a.lo), -inf), lowest) if a.lo > -inf else lowest
        hi = min(_outward(value(a.hi), inf), highest) if a.hi < inf else highest
        return interval(lo, hi)

    return rule


def total(a: Domain, b: Domain) -> Domain:
    return interval(a.lo + b.lo, a.hi + b.hi, a.lo_open or b.lo_open, a.hi_open or b.hi_open)


def negated(a: Domain) -> Domain:
    return interval(-a.hi, -a.lo, a.hi_open, a.lo_open)


def difference(a: Domain, b: Domain) -> Domain:
    return total(a, negated(b))


def product(a: Domain, b: Domain) -> Domain:
    corners = [_times(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    positive = a.lo >= 0 and b.lo >= 0 and 0 not in a and 0 not in b
    return interval(min(corners), max(corners), lo_open=positive and min(corners) == 0)


def quotient(a: Domain, b: Domain) -> Domain:
    """The domain of a / b where it is defined: a bound 0 of the divisor counts as open."""
    if b.lo < 0 < b.hi or b.constant == 0:
        return ANY
    far, near = (b.hi, b.lo) if b.lo >= 0 else (b.lo, b.hi)
    least: Bound = Fraction(0) if math.isinf(far) else 1 / Fraction(far)
    most: Bound = Fraction(0)
    if near == 0:
        most = inf if b.lo >= 0 else -inf
    elif not math.isinf(near):
        most = 1 / Fraction(near)
    low, high = (least, most) if least <= most else (most, least)
    return product(a, interval(low, high, lo_open=low == 0, hi_open=high == 0))


def power(a: Domain, b: Domain) -> Domain:
    if a.lo >= 0:
        low = a.lo > 0 and b.lo >= 0 and a.lo >= 1
        return interval(Fraction(1) if low else Fraction(0), inf)
    if b.constant is not None and b.constant.denominator == 1 and b.constant % 2 == 0:
        return interval(Fraction(0), inf)
    return ANY


def magnitude(a: Domain) -> Domain:
    if a.lo >= 0:
        return a
    if a.hi <= 0:
        return negated(a)
    return interval(Fraction(0), max(-a.lo, a.hi))


def least(a: Domain, b: Domain) -> Domain:
    return interval(min(a.lo, b.lo), min(a.hi, b.hi), (a if a.lo <= b.lo else b).lo_open)


def greatest(a: Domain, b: Domain) -> Domain:
    return interval(max(a.lo, b.lo), max(a.hi, b.hi), (a if a.lo >= b.lo else b).lo_open)


def _always(a: bool, b: bool) -> Domain:
    """The domain of a condition that is always true (a), always false (b), or either."""
    return interval(Fraction(1), Fraction(1)) if a else interval(Fraction(0), Fraction(0)) if b else CONDITION


def less(a: Domain, b: Domain) -> Domain:
    return _always(
        a.hi < b.lo or (a.hi == b.lo and (a.hi_open or b.lo_open)),
        a.lo >= b.hi,
    )


def at_most(a: Domain, b: Domain) -> Domain:
    return _always(
        a.hi <= b.lo,
        a.lo > b.hi or (a.lo == b.hi and (a.lo_open or b.hi_open)),
    )


def equal(a: Domain, b: Domain) -> Domain:
    apart = less(a, b).constant == 1 or less(b, a).constant == 1
    if a.values is not None and b.values is not None:
        apart = apart or not set(a.values) & set(b.values)
    else:
        for one, other in ((a, b), (b, a)):
            apart = apart or (one.values is not None and not any(v in other for v in one.values))
    return _always(a.constant is not None and a.constant == b.constant, apart)


def unequal(a: Domain, b: Domain) -> Domain:
    return complement(equal(a, b))


def both(a: Domain, b: Domain) -> Domain:
    return _always(a.constant == 1 == b.constant, a.constant == 0 or b.constant == 0)


def either(a: Domain, b: Domain) -> Domain:
    return _always(a.constant == 1 or b.constant == 1, a.constant == 0 == b.constant)


def stepwise(whole: Callable[[Fraction], int]) -> Callable[[Domain], Domain]:
    """Domain rule of an increasing function to integers."""

    def rule(a: Domain) -> Domain:
        lo, hi = (Fraction(whole(x)) if isinstance(x, Fraction) else x for x in (a.lo, a.hi))
        return interval(lo, hi)

    return rule


def sign(a: Domain) -> Domain:
    return interval(Fraction(-1) if a.lo < 0 else Fraction(0), Fraction(1) if a.hi > 0 else Fraction(0))


def complement(a: Domain) -> Domain:
    return _always(a.constant == 0, a.constant == 1)


def elementwise_domain(op: Elementwise, domains: tuple[Domain, ...]) -> Domain:
    """The domain of the results, from the domains of the operands."""
    missing = any(d.missing for d in domains)
    if any(d.values == () for d in domains):
        return Domain(Fraction(0), Fraction(0), values=(), missing=True)
    return op.domain(*(d.present() for d in domains)).or_missing(missing)
