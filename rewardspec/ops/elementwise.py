"""Elementwise operators: arithmetic, minimum and maximum, comparisons, logic. Functions are in `functions.py`.

The rules here get present operands only. `ir.node.evaluate` and `ranges.py` add: missing in, missing out.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rewardspec.ops import forms, ranges
from rewardspec.ops.domain import Domain
from rewardspec.ops.exact import Inexact, bounded
from rewardspec.ops.operator import ELEMENTWISE as ELEMENTWISE
from rewardspec.ops.operator import Builder, Elementwise, N, Undefined, When, declare
from rewardspec.ops.ranges import elementwise_domain as elementwise_domain
from rewardspec.ops.real import UNKNOWN, Real, TooClose, real, root


def elementwise_exact(op: Elementwise, values: tuple[Any, ...]) -> Any:
    """The exact result for present operands; a float if any operand is one. A result too large to keep is a `Real`."""
    if any(isinstance(v, float) for v in values):
        return op.exact(*(float(v) for v in values))
    try:
        found = op.exact(*values)
        return found if isinstance(found, Real) else bounded(found)
    except TooClose:
        raise
    except Inexact:  # too large to keep exactly: a `Real` remembers how it was made
        return real(op.name, *values)


# Arithmetic --------------------------------------------------------------------------------------


def _sum(name: str, word: str, exact: Callable[..., Any], **rest: Any) -> None:
    declare(
        Elementwise(
            name=name,
            word=word,
            exact=exact,
            enclosure=exact,
            torch=f"{{}} {name} {{}}",
            precedence=5,
            repeats=True,
            arithmetic=True,
            sums=True,
            **rest,
        )
    )


_sum("+", "sum", lambda a, b: a + b, domain=ranges.total, normal_form=forms.plus)
_sum("-", "difference", lambda a, b: a - b, domain=ranges.difference, normal_form=forms.minus)
declare(
    Elementwise(
        name="*",
        word="product",
        exact=lambda a, b: a * b,
        domain=ranges.product,
        enclosure=lambda a, b: a * b,
        normal_form=forms.times,
        torch="{} * {}",
        precedence=6,
        repeats=True,
        arithmetic=True,
    )
)


def _by_zero(graph: Builder[N], above: N, below: N) -> N:
    """Where `below` is 0 and `above` is present: missing / 0 is missing."""
    return graph.both(graph.compare("==", below, graph.const(0), asked=False), graph.present(above))


declare(
    Elementwise(
        name="/",
        word="ratio",
        exact=lambda a, b: a / b,
        domain=ranges.quotient,
        undefined=Undefined(lambda a, b: 0 in b, _by_zero, "a division by 0"),
        enclosure=lambda a, b: a / b,
        normal_form=forms.over,
        torch="{} / {}",
        precedence=6,
        repeats=True,
        arithmetic=True,
    )
)
declare(
    Elementwise(
        name="neg",
        exact=lambda a: -a,
        domain=ranges.negated,
        enclosure=lambda a: -a,
        normal_form=forms.negative,
        torch="-{}",
        precedence=7,
        repeats=True,
        arithmetic=True,
        sums=True,
    )
)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        found = float(a) ** float(b)
        if isinstance(found, complex):
            raise ValueError("a non-integer power of a negative number")
        return found
    if not isinstance(b, Fraction) or b.denominator != 1:
        if b == Fraction(1, 2):
            if a < 0:
                raise ValueError("the square root of a negative number")
            return root(a)
        if a > 0:
            return Fraction(1) if a == 1 else real("**", a, b)
        if a == 0 and b != 0:
            return Fraction(0) if b > 0 else 1 / Fraction(0)
        raise ValueError("a non-integer power of a negative number")
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


def _power_may_be_undefined(a: Domain, b: Domain) -> bool:
    whole = b.values is not None and all(v.denominator == 1 for v in b.values)
    return (0 in a and b.lo < 0) or (a.lo < 0 and not whole)


def _power_is_undefined(graph: Builder[N], base: N, exponent: N) -> N:
    """Where `base ** exponent` is undefined. It is missing, not undefined, if an operand is missing."""
    zero = graph.const(0)
    whole = graph.either(
        graph.compare("==", graph.apply("floor", exponent), exponent, asked=False),
        graph.negation(graph.present(exponent)),
    )
    imaginary = graph.both(graph.compare("<", base, zero, asked=False), graph.negation(whole))
    pole = graph.both(graph.compare("==", base, zero, asked=False), graph.compare("<", exponent, zero, asked=False))
    return graph.either(imaginary, pole)


declare(
    Elementwise(
        name="**",
        word="power",
        exact=_power,
        domain=ranges.power,
        undefined=Undefined(_power_may_be_undefined, _power_is_undefined, "an undefined power"),
        enclosure=lambda a, b: a**b,
        normal_form=forms.any_power,
        real=True,
        torch="{} ** {}",
        precedence=8,
        hides_missing=True,  # x ** 0 and 1 ** x are 1
    )
)


# Minimum and maximum -----------------------------------------------------------------------------------------


def least(values: Any) -> Any:
    """The least of some numbers; where two are too close to call, a `Real` that is their minimum."""
    return _fold("minimum", min, values)


def greatest(values: Any) -> Any:
    return _fold("maximum", max, values)


def _fold(op: str, pick: Callable[[Any, Any], Any], values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        try:
            result = pick(result, value)
        except TooClose:
            result = real(op, result, value)
    return result


declare(
    Elementwise(
        name="minimum",
        exact=lambda a, b: least([a, b]),
        domain=ranges.least,
        enclosure=lambda a, b: a.min(b),
        torch="torch.minimum({}, {})",
        limit="{}.clamp(max={})",
        chooses=True,
    )
)
declare(
    Elementwise(
        name="maximum",
        exact=lambda a, b: greatest([a, b]),
        domain=ranges.greatest,
        enclosure=lambda a, b: a.max(b),
        torch="torch.maximum({}, {})",
        limit="{}.clamp(min={})",
        chooses=True,
    )
)


# Comparisons and logic: `Graph.compare` handles operands that can be missing ----------------------


def _comparison(name: str, word: str, opposite: str, holds: Callable[[Any, Any], bool], domain: Any) -> None:
    declare(
        Elementwise(
            name=name,
            word=word,
            exact=lambda a, b: Fraction(holds(a, b)),
            domain=domain,
            torch=f"{{}} {name} {{}}",
            precedence=1,
            boolean=True,
            opposite=opposite,
        )
    )


_comparison("<", "below", ">=", lambda a, b: a < b, ranges.less)
_comparison("<=", "at_most", ">", lambda a, b: a <= b, ranges.at_most)
_comparison(">", "above", "<=", lambda a, b: a > b, lambda a, b: ranges.less(b, a))
_comparison(">=", "at_least", "<", lambda a, b: a >= b, lambda a, b: ranges.at_most(b, a))
_comparison("==", "equals", "!=", lambda a, b: a == b, ranges.equal)
_comparison("!=", "differs", "==", lambda a, b: a != b, ranges.unequal)


def _known(row: tuple[Any, ...]) -> list[Any]:
    return [v for v in row if v is not UNKNOWN]


declare(
    Elementwise(
        name="and",
        exact=lambda a, b: Fraction(a == 1 and b == 1),
        undecided=lambda row: Fraction(0) if any(v != 1 for v in _known(row)) else UNKNOWN,
        domain=ranges.both,
        torch="{} & {}",
        precedence=4,
        repeats=True,
        boolean=True,
        conditions=(0, 1),
        asked={1: (When.HOLDS, 0)},  # as in Python: the second is not evaluated if the first decides
    )
)
declare(
    Elementwise(
        name="or",
        exact=lambda a, b: Fraction(a == 1 or b == 1),
        undecided=lambda row: Fraction(1) if any(v == 1 for v in _known(row)) else UNKNOWN,
        domain=ranges.either,
        torch="{} | {}",
        precedence=2,
        repeats=True,
        boolean=True,
        conditions=(0, 1),
        asked={1: (When.FAILS, 0)},
    )
)
declare(
    Elementwise(
        name="not",
        word="without",
        exact=lambda a: Fraction(a == 0),
        undecided=lambda row: UNKNOWN,
        domain=ranges.complement,
        torch="~{}",
        precedence=7,
        boolean=True,
        conditions=(0,),
    )
)
