"""Statistics of the values that a reduction selects."""

from fractions import Fraction

import mpmath

from reference.numbers import TooClose, digits

MISSING = None


def statistic(do, name, values, setting, x):
    if name == "count":
        return do.leaf(Fraction(len(values)))
    if name in ("any", "all"):
        held = [v.value == 1 for v in values]
        return do.leaf(Fraction(int(any(held) if name == "any" else all(held))))
    if name == "sum":
        return do.sum(values)
    if name in ("std", "var"):
        return deviation(do, name, values, setting, x)
    if not values:
        return MISSING
    if name == "mean":
        return do.div(do.sum(values, "mean"), do.leaf(Fraction(len(values))))
    if name in ("min", "max"):
        return do.least(values) if name == "min" else do.greatest(values)
    ordered = sorted(values, key=lambda v: digits(v.value))
    if name == "kth":
        return ordered[-int(setting)] if setting <= len(ordered) else MISSING
    assert name == "quantile", name
    place = setting * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    part = do.mul(do.leaf(place - low), do.sub(ordered[high], ordered[low]))
    return do.add(ordered[low], part) if place > low else ordered[low]


def deviation(do, name, values, ddof, x):
    if len(values) < 2 or not has_spread(do, values, x):
        return do.leaf(Fraction(0))
    exact = [v.value for v in values]
    if not all(isinstance(v, Fraction) for v in exact):
        exact = [digits(v) for v in exact]
    mean = sum(exact) / len(exact)
    variance = sum((v - mean) ** 2 for v in exact) / (len(exact) - ddof)
    off = 2 * max(do.off(v) for v in values)
    root = do.root(variance)
    made = (name, ddof, *sorted(v.made for v in values))
    if name == "var":
        return do.number(variance, 2 * float(root) * off + off * off + do.unit * float(variance), made)
    return do.number(root, off * 1.5 + do.unit * float(root), made)


def has_spread(do, values, x):
    """Law 1. Sums that differ in rounding alone have none; what else is that close is no test."""
    if all(isinstance(v.value, Fraction) for v in values) and not do.unit:
        return any(v.value != values[0].value for v in values)
    if do.unit and len({v.made for v in values}) == 1:
        return False
    exact = [digits(v.value) for v in values]
    spread, largest = max(exact) - min(exact), max(abs(v) for v in exact)
    if spread <= largest * mpmath.mpf(10) ** -48:
        if do.unit and x is not None and not seen_through(x) and any(v.error for v in values):
            raise TooClose
        return False
    if do.unit and float(spread) <= 16 * (max(do.off(v) for v in values) + 4 * do.coarsest * float(largest)):
        raise TooClose
    return True


def seen_through(x):
    """Whether a value is a sum in the sense of law 1."""
    if x.op in ("+", "-", "components", "column"):
        return True
    if x.op in ("if", "min", "max", "coalesce", "spread", "neg", "*"):
        return any(seen_through(a) for a in x.args)
    return False
