"""Functions of an ordered list: `so_far([1, 0, 2]) = [1, 1, 3]`.

Each gives a value for every item of a rollout's list. The exact rules take all items of one rollout in order, None for
a missing one. The torch kernels are in `emit/runtime/items.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf
from typing import Any

from rewardspec.ops.domain import Domain, interval
from rewardspec.ops.elementwise import ELEMENTWISE, elementwise_exact
from rewardspec.ops.operator import Function, Leaf, Scan, declare

ZERO = Fraction(0)


def _sums(x: Domain) -> Domain:
    if x.constant == 0 or x.values == ():
        return interval(ZERO, ZERO)
    return interval(-inf if x.lo < 0 else ZERO, inf if x.hi > 0 else ZERO)


def _before(values: Sequence[Any], _: Any) -> list[Any]:
    return [None, *values[:-1]][: len(values)]


def _after(values: Sequence[Any], _: Any) -> list[Any]:
    return [*values[1:], None][: len(values)]


def _so_far(values: Sequence[Any], _: Any) -> list[Any]:
    found: list[Any] = []
    total: Any = ZERO
    for value in values:
        total = total if value is None else elementwise_exact(ELEMENTWISE["+"], (total, value))
        found.append(total)
    return found


def _returns(values: Sequence[Any], gamma: Any) -> list[Any]:
    found: list[Any] = []
    total: Any = ZERO
    for value in reversed(values):
        later = elementwise_exact(ELEMENTWISE["*"], (gamma, total))
        total = later if value is None else elementwise_exact(ELEMENTWISE["+"], (value, later))
        found.append(total)
    return found[::-1]


def _scan(name: str, about: str, example: str, exact: Callable[..., Any], domain: Callable[[Domain], Domain]) -> None:
    parameter = "gamma" if name == "returns" else ""
    declare(
        Scan(
            name=name,
            function=Function(
                ("x", parameter) if parameter else ("x",),
                1,
                (parameter,) if parameter else (),
                about=about,
                example=example,
            ),
            exact=exact,
            domain=domain,
            parameter=parameter,
        )
    )


_scan(
    "before",
    "of the item before, in an ordered list; missing for the first",
    "before([1, 0, 2 | 5]) = [missing, 1, 0, missing]",
    _before,
    lambda x: x.or_missing(),
)
_scan(
    "after",
    "of the item after, in an ordered list; missing for the last",
    "after([1, 0, 2 | 5]) = [0, 2, missing, missing]",
    _after,
    lambda x: x.or_missing(),
)
_scan(
    "so_far",
    "sum of the present values up to an item and with it, in an ordered list",
    "so_far([1, missing, 2 | 5]) = [1, 1, 3, 5]",
    _so_far,
    _sums,
)
_scan(
    "returns",
    "sum of an item and all that follow, each `gamma` less than the one before; in an ordered list",
    "returns([1, 0, 2 | 5], 0.5) = [1.5, 1, 2, 5]",
    _returns,
    _sums,
)
declare(
    Leaf(
        name="position",
        function=Function(
            ("list",), 1, about="the place of an item in its list, from 1", example="position([5, 5 | 5]) = [1, 2, 1]"
        ),
    )
)
