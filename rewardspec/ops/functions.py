"""Functions of single values, and the table of all functions that are not definitions.

A new function is one declaration here. `lower/calls.py` turns calls into nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import inf
from typing import Any

from rewardspec.ops import exact, forms, lists, ranges, reductions, structure  # noqa: F401  (some only declare)
from rewardspec.ops import real as reals
from rewardspec.ops.domain import Domain, interval
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operator import FUNCTIONS, Builder, Elementwise, Function, N, Undefined, declare, of_one
from rewardspec.ops.real import Real, TooClose, real, root

__all__ = ["FUNCTIONS", "Function"]


def real_function(name: str, by_float: Callable[[float], float], at_zero: int | Fraction) -> Callable[[Any], Any]:
    """The exact rule of a transcendental function: `at_zero` at 0, the only rational with a rational value."""

    def exact(a: Any) -> Any:
        if isinstance(a, float):
            return by_float(a)
        return Fraction(at_zero) if not isinstance(a, Real) and a == 0 else real(name, a)

    return exact


declare(
    Elementwise(
        name="abs",
        function=of_one("magnitude", "abs([-2, 3]) = [2, 3]"),
        exact=lambda a: abs(a),
        domain=ranges.magnitude,
        enclosure=lambda a: abs(a),
        normal_form=forms.magnitude,
        torch="{}.abs()",
    )
)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


declare(
    Elementwise(
        name="sigmoid",
        function=of_one("1 / (1 + exp(-x))", "sigmoid([0, 2]) = [0.5, 0.8808]"),
        exact=real_function("sigmoid", _sigmoid, Fraction(1, 2)),
        domain=ranges.image(_sigmoid, Fraction(0), Fraction(1)),
        enclosure=lambda a: 1 / (1 + (-a).exp()),
        normal_form=forms.sigmoid,
        real=True,
        torch="torch.sigmoid({})",
    )
)
declare(
    Elementwise(
        name="tanh",
        function=of_one("hyperbolic tangent", "tanh([0, 1]) = [0, 0.7616]"),
        exact=real_function("tanh", math.tanh, 0),
        domain=ranges.image(math.tanh, Fraction(-1), Fraction(1)),
        enclosure=lambda a: a.tanh(),
        normal_form=forms.tangent,
        real=True,
        torch="torch.tanh({})",
    )
)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else inf


declare(
    Elementwise(
        name="exp",
        function=of_one("e to the power of x", "exp([0, 1]) = [1, 2.7183]"),
        exact=real_function("exp", _exp, 1),
        domain=ranges.image(_exp, Fraction(0), inf),
        enclosure=lambda a: a.exp(),
        normal_form=forms.exponential,
        real=True,
        torch="torch.exp({})",
    )
)


def _log(a: Any) -> Any:
    if isinstance(a, float):
        return math.log(a)
    if a <= 0:
        raise ValueError("the log of 0 or a negative number")
    if isinstance(a, Real) and a.op == "**" and a.args[0] > 0:
        return a.args[1] * _log(a.args[0])
    return Fraction(0) if a == 1 else real("log", a)


declare(
    Elementwise(
        name="log",
        function=of_one("natural logarithm; an error at 0 or less", "log([1, 10]) = [0, 2.3026]"),
        exact=_log,
        domain=ranges.image(lambda x: math.log(x) if x > 0 else -inf, -inf, inf),
        undefined=Undefined(
            lambda a: a.lo <= 0 and not (a.lo == 0 and a.lo_open),
            lambda graph, a: graph.compare("<=", a, graph.const(0), asked=False),
            "the log of 0 or a negative number",
        ),
        enclosure=lambda a: a.log(),
        normal_form=forms.logarithm,
        real=True,
        torch="torch.log({})",
    )
)


def _sqrt(a: Any) -> Any:
    if isinstance(a, float):
        return math.sqrt(a)
    if a < 0:
        raise ValueError("the square root of a negative number")
    return root(a)


declare(
    Elementwise(
        name="sqrt",
        function=of_one("square root; an error below 0", "sqrt([0, 2]) = [0, 1.4142]"),
        exact=_sqrt,
        domain=ranges.image(lambda x: math.sqrt(x) if x > 0 else 0.0, Fraction(0), inf),
        undefined=Undefined(
            lambda a: a.lo < 0,
            lambda graph, a: graph.compare("<", a, graph.const(0), asked=False),
            "the square root of a negative number",
        ),
        enclosure=lambda a: a.sqrt(),
        normal_form=forms.root,
        real=True,
        torch="torch.sqrt({})",
    )
)
declare(
    Elementwise(
        name="cos",
        function=of_one("cosine of an angle in radians", "cos([0, 1]) = [1, 0.5403]"),
        exact=real_function("cos", math.cos, 1),
        domain=lambda a: interval(Fraction(-1), Fraction(1)),
        enclosure=lambda a: a.cos(),
        normal_form=forms.cosine,
        real=True,
        torch="torch.cos({})",
    )
)
declare(
    Elementwise(
        name="floor",
        function=of_one("the largest whole number that is at most x", "floor([-1.5, 2.7]) = [-2, 2]"),
        exact=lambda a: Fraction(math.floor(a) if isinstance(a, Fraction | float) else reals.floor(a)),
        domain=ranges.stepwise(math.floor),
        torch="torch.floor({})",
    )
)


def _round(a: Any) -> Fraction:
    if isinstance(a, Fraction | float):
        return Fraction(round(a))
    above = a + Fraction(1, 2)
    whole = reals.floor(above)
    return Fraction(whole - 1 if whole % 2 and above == whole else whole)  # halves to the even one


declare(
    Elementwise(
        name="round",
        function=of_one("the nearest whole number; halves go to the even one", "round([0.5, 1.5, -2.6]) = [0, 2, -3]"),
        exact=_round,
        domain=ranges.stepwise(round),
        torch="torch.round({})",
    )
)
declare(
    Elementwise(
        name="sign",
        function=of_one("-1, 0 or 1", "sign([-3, 0, 2]) = [-1, 0, 1]"),
        exact=lambda a: Fraction((a > 0) - (a < 0)),
        domain=ranges.sign,
        torch="torch.sign({})",
        hides_missing=True,  # the sign of NaN is 0
    )
)


def _whole(x: Any) -> int:
    """`x` as a whole number from 0; a ValueError if it is none."""
    try:
        whole = math.floor(x) if isinstance(x, Fraction | float) else reals.floor(x)
    except OverflowError as large:
        raise TooClose("a number too large to tell whether it is whole") from large
    if whole < 0 or whole != x:
        raise ValueError("`comb` of other than whole numbers from 0")
    return whole


def _comb(n: Any, k: Any) -> Any:
    """Floats in, a float out: infinite above their range. Inexact for a result of more bits than are kept."""
    size, taken = _whole(n), _whole(k)
    if taken > size:
        return 0.0 if isinstance(n, float) else Fraction(0)
    least = min(taken, size - taken)
    small = least * max(size.bit_length() - least.bit_length() + 3, 1) <= 2 * exact.MOST_BITS
    if isinstance(n, float):
        try:
            return float(math.comb(size, least)) if small else inf
        except OverflowError:
            return inf
    if not small:
        raise Inexact("a binomial coefficient too large to keep exactly")
    return Fraction(math.comb(size, least))


def _comb_domain(n: Domain, k: Domain) -> Domain:
    """`comb` grows with n; in k it rises up to n / 2 and falls from there."""

    def at(size: Fraction, taken: Fraction) -> Fraction | float:
        try:
            return Fraction(_comb(size, taken))
        except Inexact:
            return inf

    low = Fraction(0)
    high: Fraction | float = inf
    few, many = (max(math.ceil(d.lo), 0) if d.lo > -inf else 0 for d in (n, k))
    if k.hi < inf:
        ends = [at(Fraction(few), Fraction(max(many, 0))), at(Fraction(few), Fraction(max(math.floor(k.hi), 0)))]
        least = min(ends)
        low = least if isinstance(least, Fraction) else low
    if n.hi < inf:
        size = max(math.floor(n.hi), 0)
        most = size // 2 if k.hi == inf else min(size // 2, max(math.floor(k.hi), 0))
        high = at(Fraction(size), Fraction(max(most, many)))
    return interval(min(low, high) if isinstance(high, Fraction) else low, high)


def _whole_domain(x: Domain) -> bool:
    return x.values is not None and all(v >= 0 and v.denominator == 1 for v in x.values)


def _comb_undefined(graph: Builder[N], n: N, k: N) -> N:
    """Where one operand is not a whole number from 0 and both are present."""
    zero = graph.const(0)
    wrong = [
        condition
        for x in (n, k)
        for condition in (
            graph.compare("<", x, zero, asked=False),
            graph.compare("!=", graph.apply("floor", x), x, asked=False),
        )
    ]
    there = graph.both(graph.present(n), graph.present(k))
    return graph.both(there, graph.either(graph.either(wrong[0], wrong[1]), graph.either(wrong[2], wrong[3])))


declare(
    Elementwise(
        name="comb",
        function=Function(
            ("n", "k"),
            2,
            about="the number of ways to choose k of n; an error if one is not a whole number from 0",
            example="comb([4, 5, 1], 2) = [6, 10, 0]",
        ),
        exact=_comb,
        domain=_comb_domain,
        undefined=Undefined(
            lambda n, k: not (_whole_domain(n) and _whole_domain(k)),
            _comb_undefined,
            "a choice of other than whole numbers from 0",
        ),
        enclosure=lambda n, k: ((n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()).exp(),
        torch="binomial({}, {})",
    )
)


# Functions that are not operators --------------------------------------------------------------------------------

FUNCTIONS["clip"] = Function(
    ("x", "low", "high"), 3, about="min(max(x, low), high)", example="clip([-1, 0.5, 3], 0, 1) = [0, 0.5, 1]"
)
FUNCTIONS["raw"] = Function(("name",), 1, about="a column as it was measured", example="raw([1, 3]) = [1, 3]")
