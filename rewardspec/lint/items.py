"""Values of groups whose rollouts have lists: one for a rollout, or a tuple with one for each item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from rewardspec.groups.blocks import lists_of
from rewardspec.ir.exact import items_of
from rewardspec.ir.graph import Graph, Node


def flat(values: Iterable[Any]) -> list[Any]:
    """The values of all rollouts, or of all their items, in order."""
    return [v for value in values for v in items_of(value)]


def side_by_side(*columns: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The values of several nodes at each rollout; at each item, if one of them has values for items.

    Rollouts in which two lists differ in length are left out.
    """
    for row in zip(*columns, strict=True):
        counts = {len(value) for value in row if isinstance(value, tuple)}
        if not counts:
            yield row
        elif len(counts) == 1:
            (count,) = counts
            yield from zip(*(v if isinstance(v, tuple) else (v,) * count for v in row), strict=True)


def shown_name(node: Node) -> str:
    """The name of a column in a message; of the places of a list's items what they tell, the number of these."""
    name: str = f"count({node.level})" if node.op == "position" else node.attributes[0]
    return name


def places(count: int) -> tuple[Fraction, ...]:
    """The places of the items of a list."""
    return tuple(Fraction(i + 1) for i in range(count))


def positions(nodes: Iterable[Node]) -> list[Node]:
    """A node for the places of the items of each list that nodes read: exact evaluation takes lengths from them."""
    graph = Graph()
    return [graph.position(level) for level in lists_of(nodes)]
