"""Operators on single values. Adding one is adding one declaration here.

Each knows its exact meaning (Fraction, Surd or Real in, one of them out; floats in, floats out), the domain
of its results given those of its operands, where it is undefined, and its torch spelling. Missing
operands are dealt with once for all of them: missing in, missing out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from rewardspec.ops import real as reals
from rewardspec.ops.domain import ANY, CONDITION, Bound, Domain, interval
from rewardspec.ops.exact import Inexact, bounded, square_root
from rewardspec.ops.real import Real, TooClose, real


@dataclass(frozen=True)
class Elementwise:
    """One operator.

    torch: a format string over the operands' source; `precedence` is Python's, for parentheses.
    undefined: name of the case in which there is no result, and a test of the operands' domains
    that tells whether it can come up. hides_missing: torch has a number where an operand is NaN, so that
    a missing value would not stay missing.
    """

    name: str
    exact: Callable
    domain: Callable[..., Domain]
    torch: str
    precedence: int = 9
    boolean: bool = False
    undefined: Callable[..., bool] | None = None
    hides_missing: bool = False


ELEMENTWISE: dict[str, Elementwise] = {}


def _op(name: str, domain, torch: str, precedence: int = 9, **rest):
    def declare(exact):
        ELEMENTWISE[name] = Elementwise(name, exact, domain, torch, precedence, **rest)
        return exact

    return declare


# Bounds ------------------------------------------------------------------------------------------


def _times(x: Bound, y: Bound) -> Bound:
    return Fraction(0) if x == 0 or y == 0 else x * y


def _outward(x: float, towards: float) -> Bound:
    return x if math.isinf(x) else Fraction(math.nextafter(math.nextafter(x, towards), towards))


def _image(function: Callable[[float], float], lowest: Bound, highest: Bound):
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


def _sum(a: Domain, b: Domain) -> Domain:
    return interval(a.lo + b.lo, a.hi + b.hi, a.lo_open or b.lo_open, a.hi_open or b.hi_open)


def _negated(a: Domain) -> Domain:
    return interval(-a.hi, -a.lo, a.hi_open, a.lo_open)


def _difference(a: Domain, b: Domain) -> Domain:
    return _sum(a, _negated(b))


def _product(a: Domain, b: Domain) -> Domain:
    corners = [_times(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    positive = a.lo >= 0 and b.lo >= 0 and 0 not in a and 0 not in b
    return interval(min(corners), max(corners), lo_open=positive and min(corners) == 0)


def _quotient(a: Domain, b: Domain) -> Domain:
    """Where a / b lies, where it is defined: the end 0 of a divisor counts as open."""
    if b.lo < 0 < b.hi or b.constant == 0:
        return ANY
    far, near = (b.hi, b.lo) if b.lo >= 0 else (b.lo, b.hi)
    least = Fraction(0) if math.isinf(far) else 1 / Fraction(far)
    most: Bound = (inf if b.lo >= 0 else -inf) if near == 0 else 1 / Fraction(near) if abs(near) < inf else Fraction(0)
    ends = sorted((least, most))
    return _product(a, interval(*ends, lo_open=ends[0] == 0, hi_open=ends[1] == 0))


def _power_domain(a: Domain, b: Domain) -> Domain:
    if a.lo >= 0:
        low = a.lo > 0 and b.lo >= 0 and a.lo >= 1
        return interval(Fraction(1) if low else Fraction(0), inf)
    if b.constant is not None and b.constant.denominator == 1 and b.constant % 2 == 0:
        return interval(Fraction(0), inf)
    return ANY


def _absolute(a: Domain) -> Domain:
    if a.lo >= 0:
        return a
    if a.hi <= 0:
        return _negated(a)
    return interval(Fraction(0), max(-a.lo, a.hi))


def _least(a: Domain, b: Domain) -> Domain:
    return interval(min(a.lo, b.lo), min(a.hi, b.hi), (a if a.lo <= b.lo else b).lo_open)


def _greatest(a: Domain, b: Domain) -> Domain:
    return interval(max(a.lo, b.lo), max(a.hi, b.hi), (a if a.lo >= b.lo else b).lo_open)


def _always(a: bool, b: bool) -> Domain:
    """A comparison that is surely true (a), surely false (b), or either."""
    return interval(Fraction(1), Fraction(1)) if a else interval(Fraction(0), Fraction(0)) if b else CONDITION


def _less(a: Domain, b: Domain) -> Domain:
    return _always(
        a.hi < b.lo or (a.hi == b.lo and (a.hi_open or b.lo_open)),
        a.lo >= b.hi,
    )


def _at_most(a: Domain, b: Domain) -> Domain:
    return _always(
        a.hi <= b.lo,
        a.lo > b.hi or (a.lo == b.hi and (a.lo_open or b.hi_open)),
    )


def _equal(a: Domain, b: Domain) -> Domain:
    apart = _less(a, b).constant == 1 or _less(b, a).constant == 1
    if a.values is not None and b.values is not None:
        apart = apart or not set(a.values) & set(b.values)
    elif a.values is not None or b.values is not None:
        values, other = (a.values, b) if a.values is not None else (b.values, a)
        apart = apart or not any(v in other for v in values)
    return _always(a.constant is not None and a.constant == b.constant, apart)


def _flip(rule):
    def flipped(*domains: Domain) -> Domain:
        result = rule(*domains)
        return _not(result)

    return flipped


def _not(a: Domain) -> Domain:
    return _always(a.constant == 0, a.constant == 1)


# Arithmetic --------------------------------------------------------------------------------------


@_op("+", _sum, "{} + {}", 5)
def _add(a, b):
    return a + b


@_op("-", _difference, "{} - {}", 5)
def _subtract(a, b):
    return a - b


@_op("*", _product, "{} * {}", 6)
def _multiply(a, b):
    return a * b


@_op("/", _quotient, "{} / {}", 6, undefined=lambda a, b: 0 in b)
def _divide(a, b):
    return a / b


@_op("neg", _negated, "-{}", 7)
def _negate(a):
    return -a


@_op(
    "**",
    _power_domain,
    "{} ** {}",
    8,
    undefined=lambda a, b: (
        (0 in a and b.lo < 0) or (a.lo < 0 and not (b.values is not None and all(v.denominator == 1 for v in b.values)))
    ),
    hides_missing=True,  # x ** 0 and 1 ** x are 1
)
def _power(a, b):
    if isinstance(a, float) or isinstance(b, float):
        found = float(a) ** float(b)
        if isinstance(found, complex):
            raise ValueError("a broken power of a negative number")
        return found
    if not isinstance(b, Fraction) or b.denominator != 1:
        if b == Fraction(1, 2):
            return _sqrt(a)
        if a > 0:
            return Fraction(1) if a == 1 else real("**", a, b)
        if a == 0 and b != 0:
            return Fraction(0) if b > 0 else 1 / Fraction(0)
        raise ValueError("a broken power of a negative number")
    n = abs(int(b))
    if a == 0 and b < 0:
        raise ZeroDivisionError
    if isinstance(a, Fraction):
        size = max(a.numerator.bit_length(), a.denominator.bit_length())
        if a not in (0, 1, -1) and size * n > 4096:
            return real("**", a, b)
        return a**n if b >= 0 else 1 / a**n
    if n > 16:
        return real("**", a, b)
    result = Fraction(1)
    for _ in range(n):
        result = result * a
    return result if b >= 0 else 1 / result


@_op("abs", _absolute, "{}.abs()")
def _abs(a):
    return abs(a)


@_op("minimum", _least, "torch.minimum({}, {})")
def _minimum(a, b):
    return least([a, b])


@_op("maximum", _greatest, "torch.maximum({}, {})")
def _maximum(a, b):
    return greatest([a, b])


def least(values):
    """The least of some numbers; where two are too close to call, a number that stands for the lesser."""
    return _fold("minimum", min, values)


def greatest(values):
    return _fold("maximum", max, values)


def _fold(op: str, pick: Callable, values):
    result = values[0]
    for value in values[1:]:
        try:
            result = pick(result, value)
        except TooClose:
            result = real(op, result, value)
    return result


# Comparisons and conditions: operands that may be missing are dealt with where conditions are built


for _name, _domain, _exact in (
    ("<", _less, lambda a, b: a < b),
    ("<=", _at_most, lambda a, b: a <= b),
    (">", lambda a, b: _less(b, a), lambda a, b: a > b),
    (">=", lambda a, b: _at_most(b, a), lambda a, b: a >= b),
    ("==", _equal, lambda a, b: a == b),
    ("!=", _flip(_equal), lambda a, b: a != b),
):
    _op(_name, _domain, f"{{}} {_name} {{}}", 1, boolean=True)(lambda a, b, compare=_exact: Fraction(compare(a, b)))


@_op(
    "and",
    lambda a, b: _always(a.constant == 1 == b.constant, a.constant == 0 or b.constant == 0),
    "{} & {}",
    4,
    boolean=True,
)
def _and(a, b):
    return Fraction(a == 1 and b == 1)


@_op(
    "or",
    lambda a, b: _always(a.constant == 1 or b.constant == 1, a.constant == 0 == b.constant),
    "{} | {}",
    2,
    boolean=True,
)
def _or(a, b):
    return Fraction(a == 1 or b == 1)


@_op("not", _not, "~{}", 7, boolean=True)
def _negation(a):
    return Fraction(a == 0)


# Functions ---------------------------------------------------------------------------------------


def _function(name: str, by_float: Callable, at_zero: int | Fraction):
    """A transcendental function: a rational at 0 only, and nobody tries where it may be 0."""

    def exact(a):
        if isinstance(a, float):
            return by_float(a)
        return Fraction(at_zero) if not isinstance(a, Real) and a == 0 else real(name, a)

    return exact


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _safe_exp(x: float) -> float:
    return math.exp(x) if x < 709 else inf


_unit = (Fraction(0), Fraction(1))
_op("sigmoid", _image(_sigmoid, *_unit), "torch.sigmoid({})")(_function("sigmoid", _sigmoid, Fraction(1, 2)))
_op("tanh", _image(math.tanh, Fraction(-1), Fraction(1)), "torch.tanh({})")(_function("tanh", math.tanh, 0))
_op("exp", _image(_safe_exp, Fraction(0), inf), "torch.exp({})")(_function("exp", _safe_exp, 1))
_op("cos", lambda a: interval(Fraction(-1), Fraction(1)), "torch.cos({})")(_function("cos", math.cos, 1))


@_op(
    "log",
    _image(lambda x: math.log(x) if x > 0 else -inf, -inf, inf),
    "torch.log({})",
    undefined=lambda a: a.lo <= 0 and not (a.lo == 0 and a.lo_open),
)
def _log(a):
    if isinstance(a, float):
        return math.log(a)
    if a <= 0:
        raise ValueError("log of 0 or less")
    if isinstance(a, Real) and a.op == "**" and a.args[0] > 0:
        return a.args[1] * _log(a.args[0])
    return Fraction(0) if a == 1 else real("log", a)


@_op(
    "sqrt",
    _image(lambda x: math.sqrt(x) if x > 0 else 0.0, Fraction(0), inf),
    "torch.sqrt({})",
    undefined=lambda a: a.lo < 0,
)
def _sqrt(a):
    if isinstance(a, float):
        return math.sqrt(a)
    if a < 0:
        raise ValueError("the root of a number below 0")
    return root(a)


def root(a):
    """The root of an exact number that is not below 0."""
    if isinstance(a, Fraction):
        try:
            return square_root(a)
        except Inexact:  # too large to take apart
            return real("sqrt", a)
    return real("sqrt", a) if a != 0 else Fraction(0)


def _stepwise(whole: Callable[[Bound], int]):
    def rule(a: Domain) -> Domain:
        return interval(*(Fraction(whole(x)) if isinstance(x, Fraction) else x for x in (a.lo, a.hi)))

    return rule


@_op("floor", _stepwise(math.floor), "torch.floor({})")
def _floor(a):
    return Fraction(math.floor(a) if isinstance(a, Fraction | float) else reals.floor(a))


@_op("round", _stepwise(round), "torch.round({})")
def _round(a):
    if isinstance(a, Fraction | float):
        return Fraction(round(a))
    above = a + Fraction(1, 2)
    whole = reals.floor(above)
    return Fraction(whole - 1 if whole % 2 and above == whole else whole)  # halves to the even one


@_op(
    "sign",
    lambda a: interval(Fraction(-1) if a.lo < 0 else Fraction(0), Fraction(1) if a.hi > 0 else Fraction(0)),
    "torch.sign({})",
    hides_missing=True,  # the sign of NaN is 0
)
def _sign(a):
    return Fraction((a > 0) - (a < 0))


def elementwise_domain(op: Elementwise, domains: tuple[Domain, ...]) -> Domain:
    """Where the results lie, given where the operands do."""
    missing = any(d.missing for d in domains)
    if any(d.values == () for d in domains):
        return Domain(Fraction(0), Fraction(0), values=(), missing=True)
    return op.domain(*(d.present() for d in domains)).or_missing(missing)


def elementwise_exact(op: Elementwise, values: tuple):
    """The exact result for present operands, kept within bounds; floats where any operand is one."""
    if any(isinstance(v, float) for v in values):
        return op.exact(*(float(v) for v in values))
    try:
        found = op.exact(*values)
        return found if isinstance(found, Real) else bounded(found)
    except TooClose:
        raise
    except Inexact:  # too large to write out: it stays a number by how it was made
        return real(op.name, *values)
