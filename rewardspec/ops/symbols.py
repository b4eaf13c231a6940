"""Symbols of normal forms, and enclosures of forms.

`3 * sqrt(2) * exp(1)` is the form `{((prime 2, 1/2), (exp 1, 1)): 3}`. A form is a sum: monomial to coefficient. A
monomial is a product of powers: sorted (symbol, exponent) pairs; the empty one is 1. A symbol is a prime (under a
root), pi, an exponential, a logarithm, a cosine, or a sum that is a divisor or under a root.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from rewardspec.ops.effort import spend
from rewardspec.ops.enclosures import PRECISIONS, enclosure, precision


class Symbol:
    """kind: prime, pi, exp, log, cos, sum or number; what: the prime, the monomial, the form or the `Real`."""

    __slots__ = ("__weakref__", "_sign", "balls", "index", "kind", "what")
    numbers = count()

    def __init__(self, kind: str, what: Any):
        self.kind, self.what, self.index = kind, what, next(Symbol.numbers)
        self.balls: dict[int, Any] = {}
        self._sign: int | None = 1 if kind in ("prime", "pi", "exp") else None

    def __repr__(self) -> str:
        return f"{self.kind}({self.what})"

    def __lt__(self, other: Symbol) -> bool:
        return self.index < other.index

    @property
    def sign(self) -> int:
        """1 or -1; 0 where enclosures do not decide."""
        if self._sign is None:
            self._sign = sign_by_balls({((self, Fraction(1)),): Fraction(1)}) or 0
        return self._sign


Monomial = tuple[tuple[Symbol, Fraction], ...]
Form = dict[Monomial, Fraction]
ONE: Monomial = ()
_symbols: WeakValueDictionary[tuple[object, ...], Symbol] = WeakValueDictionary()


def symbol(kind: str, what: Any) -> Symbol:
    key = (kind, frozenset(what.items()) if isinstance(what, dict) else what)
    found = _symbols.get(key)
    if found is None:
        found = _symbols[key] = Symbol(kind, what)
    return found


def power_of(s: Symbol, exponent: Fraction | int = 1) -> Form:
    return {((s, Fraction(exponent)),): Fraction(1)}


def rational(value: Fraction | int) -> Form:
    return {ONE: Fraction(value)} if value else {}


def constant(form: Form) -> Fraction | None:
    return Fraction(0) if not form else form[ONE] if set(form) == {ONE} else None


def sign_by_balls(form: Form) -> int | None:
    for bits in PRECISIONS:
        ball = ball_of(form, bits)
        if ball > 0 or ball < 0:
            return 1 if ball > 0 else -1
    return None


def ball_of(form: Form, bits: int) -> Any:
    """An enclosure of a form, computed with `bits` bits."""
    with precision(bits):
        stack = [s for m in form for s, _ in m]
        while stack:  # symbols contain earlier symbols only
            top = stack[-1]
            left = [s for s in _inside(top) if bits not in s.balls] if bits not in top.balls else []
            if left:
                stack.extend(left)
                continue
            stack.pop()
            if bits not in top.balls:
                top.balls[bits] = _ball_of_symbol(top, bits)
        return _sum_of_balls(form, bits)


def _inside(s: Symbol) -> list[Symbol]:
    if s.kind in ("log", "cos", "sum"):
        return [t for m in s.what for t, _ in m]
    return [t for t, _ in s.what] if s.kind == "exp" else []


def _ball_of_symbol(s: Symbol, bits: int) -> Any:
    from flint import arb

    match s.kind:
        case "prime":
            return arb(s.what)
        case "pi":
            return arb.pi()
        case "number":
            return enclosure(s.what, bits)
        case "exp":
            return _sum_of_balls({s.what: Fraction(1)}, bits).exp()
    inside = _sum_of_balls(s.what, bits)
    return {"log": inside.log, "cos": inside.cos, "sum": lambda: inside}[s.kind]()


def _sum_of_balls(form: Form, bits: int) -> Any:
    from flint import arb, fmpq

    total = arb(0)
    spend(4 * sum(1 + len(m) for m in form))
    for monomial, q in form.items():
        term = arb(fmpq(q.numerator, q.denominator))
        for s, e in monomial:
            base = s.balls[bits]
            term *= (
                base if e == 1 else base ** (int(e) if e.denominator == 1 else arb(fmpq(e.numerator, e.denominator)))
            )
        total += term
    return total
