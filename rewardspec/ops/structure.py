"""Leaves, and operators that can have a value where an operand is missing: choices, `present`, `coalesce`, copies."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rewardspec.ops.operator import Function, Leaf, Structural, Undefined, When, declare, of_one
from rewardspec.ops.real import UNKNOWN, TooClose

# Leaves: `emit/sources.py` writes their source. `undefined` is an expression without a value for any rollout; it is an
# error only if something reads it.

declare(Leaf(name="const"))
declare(Leaf(name="missing"))
declare(Leaf(name="column"))
declare(Leaf(name="given"))
declare(Leaf(name="undefined"))


# Choices ----------------------------------------------------------------------------------


def _choice(row: tuple[Any, ...]) -> Any:
    condition, then, otherwise = row
    if condition is not UNKNOWN:
        return then if condition == 1 else otherwise
    return then if _same(then, otherwise) else UNKNOWN


def _same(a: Any, b: Any) -> bool:
    """Whether two values are surely equal, or both missing."""
    if a is None or b is None or a is UNKNOWN or b is UNKNOWN:
        return a is None and b is None
    try:
        return bool(a == b)
    except TooClose:
        return False


def _first(row: tuple[Any, ...]) -> Any:
    x, otherwise = row
    return UNKNOWN if x is UNKNOWN else otherwise if x is None else x


def _unknown(row: tuple[Any, ...]) -> Any:
    return UNKNOWN


def _sum_of_present(values: Sequence[Any]) -> Any:
    there = [v for v in values if v is not None]
    return sum(there[1:], there[0]) if there else None


declare(
    Structural(
        name="if",
        word="chosen",
        exact=lambda values: values[1] if values[0] == 1 else values[2],
        undecided=_choice,
        torch="torch.where({}, {}, {})",
        conditions=(0,),
        asked={1: (When.HOLDS, 0), 2: (When.FAILS, 0)},
        chooses=True,
    )
)
declare(
    Structural(
        name="required",
        function=of_one("x; an error where it is missing and needed", "required([2, 5]) = [2, 5]"),
        undefined=Undefined(lambda x: True, lambda graph, x: graph.negation(graph.present(x)), "missing"),
        undecided=_unknown,
        torch="{}",
    )
)
declare(
    Structural(
        name="present",
        function=of_one("1 where x is not missing, else 0", "present([5, missing]) = [1, 0]"),
        exact=lambda values: Fraction(values[0] is not None),
        undecided=_unknown,
        torch="~torch.isnan({})",
        precedence=7,
        boolean=True,
    )
)
declare(
    Structural(
        name="coalesce",
        function=Function(
            ("x", "otherwise"),
            2,
            rest=True,
            about="the first argument that is not missing",
            example="coalesce([5, missing], 0) = [5, 0]",
        ),
        exact=lambda values: values[1] if values[0] is None else values[0],
        undecided=_first,
        torch="torch.where(torch.isnan({0}), {1}, {0})",
        asked={1: (When.MISSING, 0)},
        chooses=True,
    )
)
declare(Structural(name="spread", exact=lambda values: values[0], undecided=_unknown))
declare(
    Structural(name="sum_components", word="sum", exact=_sum_of_present, undecided=_unknown, sums=True, arithmetic=True)
)
declare(
    Structural(
        name="copies",
        undecided=lambda row: Fraction(1),  # a group that is the whole batch leaves no place to refill
        torch="draw_copies(batch, {}, {})",
        conditions=(0,),
        asked={1: (When.HOLDS, 0)},
    )
)
