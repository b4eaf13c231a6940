"""Ids in groups: how many values represent all, and groups up to the renaming of ids.

In a group of three an id can divide the rollouts in five ways, whatever it is called: all alike, one apart, all apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb, factorial, perm
from typing import Any

from rewardspec.ir.node import Node
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import COMPARISONS, REDUCTIONS

Places = tuple[int, ...]  # the rollouts of a group, as indices of states


@dataclass(frozen=True)
class IdPoints:
    """The points of the id columns of some nodes, for groups of one size.

    of: column to its values. free: of each column whose values can be renamed in every group, those values.
    """

    of: Mapping[Node, list[Fraction]]
    free: Mapping[Node, tuple[Fraction, ...]]


def id_points(nodes: Sequence[Node], size: int, items: int) -> IdPoints:
    """Points of all id columns that represent all values in groups of up to `size` rollouts.

    Ids that are compared share their values. One that divides its group has as many as rollouts, so that all of them
    can differ; one that is only compared has those of the others and one that is none of them. items: of a list, at
    most.
    """
    families: list[list[Node]] = [[n] for n in nodes if n.op == "column" and n.domain.ids]
    dividing: set[Node] = set()
    for node in nodes:
        if node.op in COMPARISONS:
            pair = [_column(a) for a in node.args]
            if all(a.domain.ids for a in pair):
                touching = [family for family in families if pair[0] in family or pair[1] in family]
                families = [family for family in families if family not in touching]
                families.append([n for family in touching for n in family])
        elif node.op in REDUCTIONS and len(node.args) == 3 and node.args[2].domain.ids:
            dividing.add(_column(node.args[2]))
    of: dict[Node, list[Fraction]] = {}
    free: dict[Node, tuple[Fraction, ...]] = {}
    for family in families:
        coarse = [n for n in family if n.level < Level.ROLLOUT]
        fine = [n for n in family if n not in coarse]
        divide = [n for n in fine if n in dividing]
        count = len(coarse) + sum(size * (items if n.level.listed else 1) for n in divide) + len(fine) - len(divide)
        of |= {n: [Fraction(i) for i in range(place + 1)] for place, n in enumerate(coarse)}
        of |= {n: [Fraction(i) for i in range(count)] for n in fine}
        if len(fine) == len(divide) == 1:
            free[fine[0]] = tuple(Fraction(i) for i in range(len(coarse), count))
    return IdPoints(of, free)


def _column(node: Node) -> Node:
    while node.op in ("spread", "required"):
        node = node.args[0]
    return node


@dataclass(frozen=True)
class Renaming:
    """States of one rollout in which one column is an id whose `free` values can be renamed.

    kinds: for each combination of the other columns the places of its states, one for each free value. rest: the
    places of all other states.
    """

    kinds: list[list[int]]
    rest: list[int]

    @classmethod
    def of(cls, states: Sequence[tuple[Any, ...]], at: int, free: Sequence[Fraction]) -> Renaming:
        """at: the place of the id among the columns of a state."""
        places: dict[tuple[Any, ...], dict[Any, int]] = {}
        for place, state in enumerate(states):
            places.setdefault((*state[:at], *state[at + 1 :]), {})[state[at]] = place
        kinds = [[found[value] for value in free] for found in places.values() if all(value in found for value in free)]
        taken = {place for kind in kinds for place in kind}
        return cls(kinds, [place for place in range(len(states)) if place not in taken])

    def count(self, size: int) -> int:
        """The number of groups of `size` rollouts, up to their order and to renaming."""
        blocks = [1] + [0] * size  # by the number of rollouts in them
        for length in range(1, size + 1):
            ways = _multisets(len(self.kinds), length)
            blocks = [
                sum(_multisets(ways, k) * blocks[n - k * length] for k in range(n // length + 1))
                for n in range(size + 1)
            ]
        return sum(blocks[n] * _multisets(len(self.rest), size - n) for n in range(size + 1))

    def groups(self, size: int) -> Iterator[tuple[Places, int]]:
        """Each of them once, and in how many ways its ids can be named."""
        names = len(self.kinds[0]) if self.kinds else 0
        for n in range(size + 1) if self.kinds else [0]:
            for rest in combinations_with_replacement(self.rest, size - n):
                for blocks in _blocks(len(self.kinds), n, n):
                    alike = 1
                    for times in Counter(blocks).values():
                        alike *= factorial(times)
                    members = (self.kinds[kind][name] for name, block in enumerate(blocks) for kind in block)
                    yield tuple(sorted((*rest, *members))), perm(names, len(blocks)) // alike


def _multisets(of: int, size: int) -> int:
    return comb(of + size - 1, size) if of else int(size == 0)


def _blocks(kinds: int, size: int, longest: int, last: Places | None = None) -> Iterator[tuple[Places, ...]]:
    """All multisets of blocks, each a multiset of kinds, with `size` members in all; longer blocks first."""
    if size == 0:
        yield ()
        return
    for length in range(min(size, longest), 0, -1):
        for block in combinations_with_replacement(range(kinds), length):
            if last is not None and length == len(last) and block < last:
                continue
            for others in _blocks(kinds, size - length, length, block):
                yield (block, *others)
