"""Blocks: what a rollout measures independently of the rest. A column is one; so are all columns of a list together."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from rewardspec.groups.points import Odds
from rewardspec.ir.exact import Values
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level

Joint = tuple[Values, ...]  # a value of each node of a block


@dataclass(frozen=True)
class Block:
    """nodes: one column; or the columns of one list and, as the last, the places of its items.

    odds: the points of each column with their probabilities; of a list those of each item, which are independent.
    items: the most items of a list, whose lengths are equally likely; None for a column.
    """

    nodes: tuple[Node, ...]
    odds: tuple[Odds, ...]
    items: int | None = None

    @property
    def count(self) -> int:
        """The number of joint values."""
        of_one = prod(map(len, self.odds))
        return of_one if self.items is None else sum(of_one**n for n in range(self.items + 1))

    def all(self) -> Iterator[tuple[Joint, float]]:
        """All joint values with their probabilities."""
        if self.items is None:
            yield from (((value,), mass) for value, mass in self.odds[0].items())
            return
        of_one = [
            (tuple(v for v, _ in row), prod(p for _, p in row)) for row in product(*(o.items() for o in self.odds))
        ]
        for n in range(self.items + 1):
            for row in product(of_one, repeat=n):
                yield self._joint([values for values, _ in row]), prod(p for _, p in row) / (self.items + 1)

    def drawn(self, draw: random.Random, count: int, evenly: bool = False) -> list[Joint]:
        """Some joint values drawn at random. evenly: with equal probabilities of all points."""

        def some(odds: Odds, count: int) -> list[Any]:
            return draw.choices(list(odds), None if evenly else list(odds.values()), k=count)

        if self.items is None:
            return [(value,) for value in some(self.odds[0], count)]
        longest = self.items
        lengths = [draw.randint(0, longest) for _ in range(count)]
        return [self._joint(list(zip(*(some(o, n) for o in self.odds), strict=True)) or [()] * n) for n in lengths]

    def _joint(self, items: Sequence[tuple[Any, ...]]) -> Joint:
        columns = [tuple(item[at] for item in items) for at in range(len(self.odds))]
        return (*columns, tuple(Fraction(i + 1) for i in range(len(items))))


def blocks_of(graph: Graph, nodes: Sequence[Node], points: Mapping[Node, Odds], items: int) -> list[Block]:
    """The blocks that nodes, as of `walk`, read: first columns, then lists."""
    found = [Block((n,), (points[n],)) for n in nodes if n.op == "column" and n.level is Level.ROLLOUT]
    for level in lists_of(nodes):
        columns = tuple(n for n in nodes if n.op == "column" and n.level is level)
        found.append(Block((*columns, graph.position(level)), tuple(points[n] for n in columns), items))
    return found


def of_items(items: int) -> str:
    """The bound of a claim from groups whose lists have no more items."""
    return f"for lists of up to {items} item{'s' * (items != 1)}"


def lists_of(nodes: Iterable[Node]) -> list[Level]:
    """The lists that nodes have values for the items of, by name."""
    return sorted({n.level for n in nodes if n.level.listed}, key=str)


def read_of(node: Node, columns: Iterable[Node]) -> list[tuple[int, Node]]:
    """Those of some columns, with their places, that a node reads; with the places of items that say how many."""
    read = set(walk([node]))
    lists = set(lists_of(read))
    return [(at, c) for at, c in enumerate(columns) if c in read or (c.op == "position" and c.level in lists)]
