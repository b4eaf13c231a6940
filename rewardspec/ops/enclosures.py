"""Enclosures: balls (`flint.arb`) that surely contain a real number, at a given precision in bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from rewardspec.ops.effort import spend
from rewardspec.ops.exact import Surd
from rewardspec.ops.operator import ELEMENTWISE

PRECISIONS = (100, 300, 900, 2700)  # bits, tried in this order


class Made:
    """A number as an expression, `exp(2)`: the operator `op` applied to `args`, each a Fraction, a Surd or a `Made`.

    `ops/real.py` adds arithmetic. balls: a cache from bits to enclosure. form: the cached normal form
    (`ops/forms.py`).
    """

    __slots__ = ("__weakref__", "args", "balls", "form", "op")

    def __init__(self, op: str, args: tuple[Any, ...]):
        self.op, self.args = op, args
        self.balls: dict[int, Any] = {}
        self.form: Any = None


def enclosure(value: Fraction | Surd | Made | int, bits: int) -> Any:
    """A ball (`flint.arb`) that contains `value`, computed with `bits` bits."""
    if not isinstance(value, Made):
        with precision(bits):
            return _plain(value)
    found = value.balls.get(bits)
    if found is None:
        with precision(bits):
            for part in parts(value, lambda r: bits in r.balls):
                spend(8 + bits // 100)
                part.balls[bits] = _rule(part.op)(
                    *(a.balls[bits] if isinstance(a, Made) else _plain(a) for a in part.args)
                )
        found = value.balls[bits]
    return found


def parts(value: Made, done: Callable[[Made], bool]) -> Iterator[Made]:
    """The subexpressions of a number that are not `done`, operands first; the number itself last."""
    stack = [value]
    while stack:
        top = stack[-1]
        left = [] if done(top) else [a for a in top.args if isinstance(a, Made) and not done(a)]
        if left:
            stack.extend(left)
            continue
        stack.pop()
        if not done(top):
            yield top


@contextmanager
def precision(bits: int) -> Iterator[None]:
    from flint import ctx  # loaded only where values are not sums of roots

    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


def _plain(value: Fraction | Surd | int) -> Any:
    from flint import arb, fmpq

    if isinstance(value, Surd):
        return sum((_plain(q) * arb(d).sqrt() for d, q in value.terms), arb(0))
    return arb(fmpq(value.numerator, value.denominator))


def _rule(op: str) -> Callable[..., Any]:
    if op == "pi":
        from flint import arb

        at: Callable[..., Any] = arb.pi
        return at
    rule = ELEMENTWISE[op].enclosure
    assert rule is not None, f"`{op}` is declared `real` without an enclosure"
    return rule
