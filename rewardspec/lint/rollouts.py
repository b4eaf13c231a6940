"""Single rollouts: the column values that they can have, and the nodes that depend on nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import inf, prod
from typing import Any

from rewardspec.groups.blocks import Block, blocks_of
from rewardspec.groups.points import ITEMS, points_of, users_of
from rewardspec.ir.exact import GroupEvaluator, of_each
from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ir.node import is_across_rollouts
from rewardspec.lint.items import positions
from rewardspec.ops.exact import Inexact

MOST_ROLLOUTS = 1500  # that are tried, one at a time
FAR = 10**6
TIMES = ("step", "progress", "total_steps")


def some_rollouts(nodes: Sequence[Node], far: bool = False) -> tuple[list[Node], list[tuple[Any, ...]]] | None:
    """The columns of nodes, and rows of values for them: all combinations, or random ones if there are too many.

    far: also values far outside, if a domain has no end. Lists have up to `ITEMS` items; their places are among the
    columns.

    None if the nodes depend on more than a rollout's own columns and the moment.
    """
    order = walk(nodes)
    if any(is_across_rollouts(n) or (n.op == "given" and n.attributes[0] not in TIMES) for n in order):
        return None
    users = users_of(order)
    columns = [n for n in order if n.op == "column"]
    endless = sum(n.domain.values is None and not n.domain.ids for n in columns)
    between = int(MOST_ROLLOUTS ** (1 / max(1, endless))) // 4
    points = []
    for node in columns:
        if node.domain.ids:  # only which of them are equal counts
            points.append([Fraction(i) for i in range(len(columns))])
            continue
        found = set(points_of(node.domain, node, users, is_result=True)[0])
        if node.domain.values is None:
            lo, hi = min(found), max(found)
            found |= {lo + (hi - lo) * Fraction(i, between + 1) for i in range(1, between + 1)}
            found |= {hi + FAR} if far and node.domain.hi == inf else set()
            found |= {lo - FAR} if far and node.domain.lo == -inf else set()
        points.append(sorted(found))
    lists = positions(order)
    if lists:
        return _with_lists(columns, points, lists)
    if prod(len(values) for values in points) <= MOST_ROLLOUTS:
        return columns, list(product(*points))
    draw = random.Random(0)
    return columns, [tuple(draw.choice(values) for values in points) for _ in range(MOST_ROLLOUTS)]


def _with_lists(
    columns: list[Node], points: list[list[Any]], lists: list[Node]
) -> tuple[list[Node], list[tuple[Any, ...]]]:
    """The columns and the places of items, and rows of values for them, some of which are lists."""
    odds = {n: dict.fromkeys(values, 1.0) for n, values in zip(columns, points, strict=True)}
    blocks = [Block((n,), (odds[n],)) for n in columns if not n.level.listed]
    blocks += blocks_of(Graph(), [*(n for n in columns if n.level.listed), *lists], odds, ITEMS)
    if prod(block.count for block in blocks) <= MOST_ROLLOUTS:
        parts = list(product(*([joint for joint, _ in block.all()] for block in blocks)))
    else:
        draw = random.Random(0)
        parts = list(zip(*(block.drawn(draw, MOST_ROLLOUTS, evenly=True) for block in blocks), strict=True))
    return [n for block in blocks for n in block.nodes], [tuple(v for joint in row for v in joint) for row in parts]


def in_rollouts(node: Node, columns: list[Node], rows: list[tuple[Any, ...]]) -> list[Any]:
    """[rollouts] the values of a node at the first step; in floats if they have no exact form."""
    start = {"step": Fraction(0), "total_steps": Fraction(1), "progress": Fraction(0)}
    try:
        return GroupEvaluator(node, columns, start)(rows, {})
    except Inexact:
        floats = [tuple(of_each(lambda v: None if v is None else float(v), v) for v in row) for row in rows]
        return GroupEvaluator(node, columns, start, floats=True)(floats, {})
