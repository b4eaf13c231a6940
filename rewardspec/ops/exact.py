"""Exact real numbers: rationals, and sums of rational multiples of square roots.

A z-score of rational rewards is a rational times the square root of an integer. Square roots of different
square-free integers are linearly independent over the rationals, so two such sums are equal exactly if their
coefficients are. No tolerance is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, total_ordering
from math import gcd, isqrt

MOST_BITS = 4096  # of a numerator or denominator
MOST_PRODUCTS = 1024  # of terms, in one product of sums of roots
_TRIAL = 10_000  # divisors tried; a rest below its cube is a prime, the square of one, or square-free


class Inexact(ArithmeticError):
    """The result is not a sum of square roots, or too large to keep exactly."""


@total_ordering
class Surd:
    """`sum of q * sqrt(d)` over square-free `d`, with at least one `d` above 1.

    Only the arithmetic here makes one. A result without roots is a Fraction.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[int, Fraction], ...]):
        self.terms = terms

    def __repr__(self) -> str:
        return " + ".join(f"{q}*sqrt({d})" for d, q in self.terms)

    def __hash__(self) -> int:
        return hash(self.terms)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Surd):
            return self.terms == other.terms
        return False if isinstance(other, Fraction | int) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return sign(self - other) < 0 if isinstance(other, Exact | int) else NotImplemented

    def __float__(self) -> float:
        digits = 30
        while True:  # ends, because a Surd is never zero
            near = _decimal(self, digits)
            if abs(near) > _size(self) * Decimal(10) ** (20 - digits):
                return float(near)
            digits *= 2

    def __neg__(self) -> Surd:
        return Surd(tuple((d, -q) for d, q in self.terms))

    def __add__(self, other: Exact | int) -> Exact:
        if not isinstance(other, Exact | int):
            return NotImplemented
        return _collect([*self.terms, *_terms(other)])

    __radd__ = __add__

    def __sub__(self, other: Exact | int) -> Exact:
        return self + -other

    def __rsub__(self, other: Exact | int) -> Exact:
        return -self + other

    def __mul__(self, other: Exact | int) -> Exact:
        if not isinstance(other, Exact | int):
            return NotImplemented
        if len(self.terms) * len(_terms(other)) > MOST_PRODUCTS:
            raise Inexact("a product of sums of too many roots")
        products = []
        for d, q in self.terms:
            for e, r in _terms(other):
                common = gcd(d, e)  # sqrt(d) sqrt(e) = common * sqrt(d e / common^2)
                products.append((d // common * (e // common), q * r * common))
        return _collect(products)

    __rmul__ = __mul__

    def __truediv__(self, other: Exact | int) -> Exact:
        if not isinstance(other, Exact | int):
            return NotImplemented
        return self * _inverse(other)

    def __rtruediv__(self, other: Exact | int) -> Exact:
        return _inverse(self) * other

    def __abs__(self) -> Surd:
        return self if sign(self) >= 0 else -self


Exact = Fraction | Surd


def _terms(value: Exact | int) -> tuple[tuple[int, Fraction], ...]:
    return value.terms if isinstance(value, Surd) else ((1, Fraction(value)),)


def _collect(terms: Iterable[tuple[int, Fraction]]) -> Exact:
    sums: dict[int, Fraction] = {}
    for d, q in terms:
        sums[d] = sums.get(d, Fraction(0)) + q
    left = tuple(sorted((d, q) for d, q in sums.items() if q))
    if not left:
        return Fraction(0)
    if len(left) == 1 and left[0][0] == 1:
        return left[0][1]
    return Surd(left)


def _inverse(value: Exact | int) -> Exact:
    """`1 / value`: numerator and divisor are multiplied by conjugates until the divisor has no root."""
    terms = _terms(value)
    if len(terms) == 1:
        ((d, q),) = terms
        return _collect([(d, 1 / (q * d))])
    p = _factor(max(d for d, _ in terms))
    with_p = _collect([(d // p, q) for d, q in terms if d % p == 0])  # value = without + sqrt(p) * with_p
    without = _collect([(d, q) for d, q in terms if d % p])
    root = Surd(((p, Fraction(1)),))
    return bounded((without - root * with_p) * _inverse(bounded(without * without - p * with_p * with_p)))


@cache
def _factor(n: int) -> int:
    """A prime factor of `n`; `n` itself where trial division finds none: it then acts as one prime."""
    p = 2
    while p <= _TRIAL and p * p <= n:
        if n % p == 0:
            return p
        p += 1 if p == 2 else 2
    return n


def _decimal(value: Exact, digits: int) -> Decimal:
    with localcontext() as context:
        context.prec = digits
        total = Decimal(0)
        for d, q in _terms(value):
            total += Decimal(q.numerator) / Decimal(q.denominator) * Decimal(d).sqrt()
        return total


def _size(value: Surd) -> Decimal:
    """About the sum of the magnitudes of the terms."""
    return sum((abs(_decimal(_collect([term]), 10)) for term in value.terms), Decimal(0))


def sign(value: Exact | int) -> int:
    """-1, 0 or 1."""
    if not isinstance(value, Surd):
        return (value > 0) - (value < 0)
    digits = 30
    while True:  # ends, because a Surd is never zero
        near = _decimal(value, digits)
        if abs(near) > _size(value) * Decimal(10) ** (8 - digits):
            return 1 if near > 0 else -1
        digits *= 2


def square_root(value: Exact) -> Exact:
    """The square root of a non-negative rational. Raises Inexact for a Surd and for too large numbers."""
    if isinstance(value, Surd):
        raise Inexact("a root of a root")
    if value == 0:
        return Fraction(0)
    outer, inner = _square_free(value.numerator * value.denominator)
    return _collect([(inner, Fraction(outer, value.denominator))])


@cache
def _square_free(n: int) -> tuple[int, int]:
    """`(a, b)` with `n = a * a * b` and `b` square-free."""
    outer, inner, p = 1, 1, 2
    while p <= _TRIAL and p * p <= n:
        while n % (p * p) == 0:
            n //= p * p
            outer *= p
        if n % p == 0:
            n //= p
            inner *= p
        p += 1 if p == 2 else 2
    root = isqrt(n)
    if root * root == n:
        return outer * root, inner
    if n > _TRIAL**3:
        raise Inexact("the square root of a number too large to factor")
    return outer, inner * n


def bounded(value: Exact) -> Exact:
    """`value`. Raises Inexact if it has more than `MOST_BITS` bits."""
    for _, q in _terms(value):
        if q.numerator.bit_length() > MOST_BITS or q.denominator.bit_length() > MOST_BITS:
            raise Inexact("a number too large to keep exactly")
    return value
