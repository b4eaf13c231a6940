"""The least value of a node seen in small groups, for claims that its domain is too wide to prove.

`x - min(x)` of [0, 1] is never below 0, yet its domain is [-1, 1]: a domain contains every value, and more where
operands are related. A value that was seen exists; values that were not seen may exist, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import inf
from typing import Any

from rewardspec.ir.exact import GroupEvaluator, Values, of_each
from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ops.domain import Domain, Level
from rewardspec.ops.exact import Inexact

FAR = 10**6
NOISE = 1e-6  # of floats, where no exact value is known: nearer to 0 their sign is unknown
MOST_VALUES = 60_000  # of nodes, in all groups that are tried
MOMENTS = tuple(
    {"step": p * 1000, "total_steps": Fraction(1000), "progress": p} for p in (Fraction(0), Fraction(1, 2), Fraction(1))
)


def least_seen(graph: Graph, value: Node, gate: Node) -> Fraction | float | None:
    """The least value seen while the gate is open; None if none was seen."""
    least = None
    asked = (value, gate)
    for columns, rows, coarse, moment in _groups(graph, asked):
        try:
            for v, opens in _seen(asked, columns, rows, coarse, moment):
                if v is not None and opens == 1 and (least is None or v < least):
                    least = v
        except Inexact:
            rows = [tuple(of_each(lambda v: None if v is None else float(v), v) for v in row) for row in rows]
            found = _seen(asked, columns, rows, coarse, moment, floats=True)
            seen = [v for v, opens in found if v is not None and opens == 1 and abs(v) > NOISE]
            least = min([*seen, *([] if least is None else [least])], default=None)
    return least


Rollout = tuple[Values, ...]
Points = list[Fraction | None]  # of a column


def _seen(
    asked: Sequence[Node],
    columns: Sequence[Node],
    rows: Sequence[Rollout],
    coarse: dict[str, Fraction | None],
    moment: dict[str, Fraction],
    floats: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """The values of two nodes, of each rollout or item."""
    found = [GroupEvaluator(node, columns, moment, floats)(rows, coarse) for node in asked]
    for pair in zip(*found, strict=True):
        count = next((len(values) for values in pair if isinstance(values, tuple)), 1)
        yield from zip(*(values if isinstance(values, tuple) else (values,) * count for values in pair), strict=True)


def _groups(
    graph: Graph, nodes: Sequence[Node]
) -> Iterator[tuple[list[Node], list[Rollout], dict[str, Fraction | None], dict[str, Fraction]]]:
    """Groups of one to four rollouts: first at the ends of all domains, then drawn at random."""
    order = walk(nodes)
    columns = [n for n in order if n.op == "column"]
    fine = [n for n in columns if n.level >= Level.ROLLOUT]
    lists = sorted({n.level for n in order if n.level.listed}, key=str)
    places = [graph.position(level) for level in lists]
    points = {n: _points(n, order) for n in columns}
    moments = MOMENTS if any(n.op == "given" for n in order) else MOMENTS[:1]
    draw = random.Random(0)

    def one(choose: Callable[[Points], Fraction | None], longest: int = 2) -> Rollout:
        long = {level: draw.randint(0, longest) if choose == draw.choice else longest for level in lists}
        row: list[Values] = [
            tuple(choose(points[n]) for _ in range(long[n.level])) if n.level.listed else choose(points[n])
            for n in fine
        ]
        return (*row, *(tuple(Fraction(i + 1) for i in range(long[level])) for level in lists))

    ends = [one(choose, longest) for longest in ((1, 2) if lists else (1,)) for choose in (_least, _most)]
    few = [[end] * size for size in (1, 2) for end in ends] + [ends]
    many = max(20, min(200, MOST_VALUES // (3 * len(order))))
    few += [[one(draw.choice) for _ in range(draw.randint(1, 4))] for _ in range(many)]
    for at, rows in enumerate(few):
        coarse = {n.attributes[0]: draw.choice(points[n]) for n in columns if n not in fine}
        yield [*fine, *places], rows, coarse, moments[at % len(moments)]


def _least(points: Points) -> Fraction | None:
    return min((p for p in points if p is not None), default=None)


def _most(points: Points) -> Fraction | None:
    return max((p for p in points if p is not None), default=None)


def _points(column: Node, order: Sequence[Node]) -> Points:
    """Values of a column: its ends, some between, and both sides of constants that it is compared with."""
    domain = column.domain
    limits = {a.constant for n in order if column in n.args for a in n.args if a.constant is not None}
    if domain.ids:
        found = {Fraction(i) for i in range(4)}
    elif domain.values is not None:
        found = set(domain.values if len(domain.values) <= 16 else (*domain.values[::16], domain.values[-1]))
    else:
        lo, hi = _ends(domain)
        found = {lo + (hi - lo) * Fraction(i, 4) for i in range(5)} | {Fraction(0), Fraction(1)}
    found |= {limit + d for limit in limits for d in (-1, Fraction(-1, 1000), 0, Fraction(1, 1000), 1)}
    return [*sorted(p for p in found if p in domain), *([None] if domain.missing else [])]


def _ends(domain: Domain) -> tuple[Fraction, Fraction]:
    lo = domain.lo if domain.lo > -inf else min(Fraction(-FAR), domain.hi - FAR) if domain.hi < inf else Fraction(-FAR)
    hi = domain.hi if domain.hi < inf else max(Fraction(FAR), lo + FAR)
    return Fraction(lo), Fraction(hi)
