"""Real numbers that are not sums of square roots: `exp(1)`, `log(2)`, pi, non-integer powers, nested roots.

A `Real` remembers its expression. Comparisons are rigorous. Enclosures (Arb's balls) of rising precision prove that
numbers differ; normal forms (`ops/forms.py`) prove that they are equal. If neither does, the comparison raises
`TooClose`, so that nothing is claimed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from math import inf, isfinite
from typing import Any
from weakref import WeakValueDictionary

from rewardspec.ops import exact, forms
from rewardspec.ops.effort import spend
from rewardspec.ops.enclosures import PRECISIONS, Made, enclosure
from rewardspec.ops.exact import Inexact, Surd, square_root


class TooClose(Inexact):
    """Two numbers agree to hundreds of digits, and no normal form proves them equal."""


class Real(Made):
    """`op` of `args`, each a Fraction, a Surd or a Real. Make it with `real`: equal expressions are one object.

    `==` and `<` raise TooClose where they cannot decide. The hash is that of the object, so count distinct numbers
    with `==`, not with sets.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{float(self):.9g}"

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __float__(self) -> float:
        for bits in PRECISIONS:
            ball = enclosure(self, bits)
            if ball.rel_accuracy_bits() >= 50:
                return float(ball)
        return float(enclosure(self, PRECISIONS[-1]).mid())

    def __add__(self, other: Operand) -> Number:
        return self if not isinstance(other, Real) and other == 0 else _sum(real("+", self, other))

    __radd__ = __add__

    def __neg__(self) -> Number:
        return self.args[0] if self.op == "neg" else real("neg", self)

    def __sub__(self, other: Operand) -> Number:
        if other is self:
            return Fraction(0)
        return self if not isinstance(other, Real) and other == 0 else _sum(real("-", self, other))

    def __rsub__(self, other: Operand) -> Number:
        return -self if other == 0 else _sum(real("-", other, self))

    def __mul__(self, other: Operand) -> Number:
        if not isinstance(other, Real) and other in (0, 1, -1):
            return Fraction(0) if other == 0 else self if other == 1 else -self
        return real("*", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Number:
        if other is self:
            return 1 / Fraction(abs(sign(self)))
        if sign(other) == 0:
            raise ZeroDivisionError
        return self if not isinstance(other, Real) and other == 1 else real("/", self, other)

    def __rtruediv__(self, other: Operand) -> Number:
        if sign(self) == 0:
            raise ZeroDivisionError
        return Fraction(0) if other == 0 else real("/", other, self)

    def __abs__(self) -> Number:
        try:
            return self if sign(self) >= 0 else -self
        except TooClose:
            return real("abs", self)

    def __eq__(self, other: object) -> bool:
        return compare(self, other) == 0 if isinstance(other, Real | Surd | Fraction | int) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return compare(self, other) < 0 if isinstance(other, Real | Surd | Fraction | int) else NotImplemented

    def __le__(self, other: object) -> bool:
        return compare(self, other) <= 0 if isinstance(other, Real | Surd | Fraction | int) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return compare(self, other) > 0 if isinstance(other, Real | Surd | Fraction | int) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return compare(self, other) >= 0 if isinstance(other, Real | Surd | Fraction | int) else NotImplemented


class Unknown:
    """A value that depends on a comparison too close to call: any number, or missing. Every use raises TooClose."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "unknown"

    def _ask(self, *_: object) -> Any:
        raise TooClose("too close to call")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __abs__ = __neg__ = __hash__ = _ask
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _ask


UNKNOWN = Unknown()
Number = Fraction | Surd | Real
Operand = Fraction | Surd | Real | int
_known: WeakValueDictionary[tuple[object, ...], Real] = WeakValueDictionary()


def real(op: str, *args: Operand) -> Real:
    """The number `op(*args)`, one object for equal expressions. The caller has checked that it is defined."""
    if op in ("+", "*", "minimum", "maximum") and hash(args[1]) < hash(args[0]):
        args = args[::-1]
    key = (op, args)
    found = _known.get(key)
    if found is None:
        found = _known[key] = Real(op, args)
    return found


def _sum(value: Real) -> Number:
    """A sum or difference; Fraction(0) where it provably cancels."""
    if enclosure(value, PRECISIONS[0]).contains(0):
        try:
            return value if sign(value) else Fraction(0)
        except TooClose:
            pass
    return value


def compare(a: Operand, b: Operand) -> int:
    """-1 if `a < b`, 0 if they are equal, else 1. Raises TooClose."""
    if a is b:
        return 0
    spend(6)
    first, second = enclosure(a, PRECISIONS[0]), enclosure(b, PRECISIONS[0])
    if first < second:
        return -1
    if first > second:
        return 1
    return sign(real("-", a, b))


def sign(value: Operand) -> int:
    """-1, 0 or 1. Raises TooClose."""
    if not isinstance(value, Real):
        return exact.sign(value)
    for bits in PRECISIONS:
        ball = enclosure(value, bits)
        if ball > 0 or ball < 0:
            return 1 if ball > 0 else -1
        if bits == PRECISIONS[0]:
            found = forms.sign_of(forms.form_of(value))
            if found is not None:
                return found
    raise TooClose("too close to call")


def root(a: Number) -> Number:
    """The square root of an exact number, which must not be negative."""
    if isinstance(a, Fraction):
        try:
            return square_root(a)
        except Inexact:  # too large to factor
            return real("sqrt", a)
    return real("sqrt", a) if a != 0 else Fraction(0)


def floor(value: Number) -> int:
    """The largest integer that is at most `value`. Raises TooClose."""
    for bits in PRECISIONS:
        found = enclosure(value, bits).floor().unique_fmpz()
        if found is not None:
            return int(found)
    near = Fraction(round(float(value)))
    return int(near) if compare(value, near) >= 0 else int(near) - 1


class Pool:
    """A set of numbers in which equal ones are one object: `canonical` gives the first that came.

    A number too close to call to one of the pool becomes UNKNOWN. None and UNKNOWN are unchanged.
    """

    def __init__(self) -> None:
        self.first: dict[Any, Any] = {}  # a number to the first one that is equal
        self.near: list[float] = []  # sorted floats of all numbers, once one is a Real
        self.values: list[Number] = []
        self.has_reals = False

    def canonical(self, value: Any) -> Any:
        if value is None or value is UNKNOWN:
            return value
        found = self.first.get(value)
        if found is None:
            found = self.first[value] = self._find(value)
        return found

    def known(self, value: Any) -> Any:
        """As `canonical`, but `value` itself where that is too close to call."""
        found = self.canonical(value)
        return value if found is UNKNOWN else found

    def _find(self, value: Number) -> Any:
        if isinstance(value, float) or not (self.has_reals or isinstance(value, Real)):
            return value
        if not self.has_reals:
            self.has_reals = True
            for old in self.first.values():
                self._add(old)
        at, unsure = approximate(value), False
        reach = abs(at) * 1e-12 + 1e-290 if isfinite(at) else 0.0
        for i in range(bisect_left(self.near, at - reach), bisect_right(self.near, at + reach)):
            try:
                if value == self.values[i]:
                    return self.values[i]
            except TooClose:
                unsure = True
        if unsure:
            return UNKNOWN
        self._add(value)
        return value

    def _add(self, value: Number) -> None:
        at = approximate(value)
        place = bisect_right(self.near, at)
        self.near.insert(place, at)
        self.values.insert(place, value)


def approximate(value: Number) -> float:
    """A float near `value`; infinite beyond the range of floats."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
