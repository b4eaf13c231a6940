"""Groups of two and of three, and the exact value of every node in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from rewardspec.groups.question import Group, Question
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import UNKNOWN

SIZES = (2, 3)
MOST_LOOKED_AT = 600  # groups of one size; of more of them a few are looked at, for what can be shown by one
FEW = 61
MOST_NODES = 40_000  # in all of these few


class SmallGroups:
    """The groups that `question` allows. What an evaluator has worked out is kept for the next group."""

    def __init__(self, question: Question):
        self.question = question
        self.shaped_nodes = {component.name: component.shaped for component in question.program.components}
        self._evaluators: dict[tuple[Any, ...], tuple[list[int], GroupEvaluator]] = {}
        self._advantages: dict[tuple[int, int], list[Any] | None] = {}

    @cached_property
    def _every(self) -> dict[int, list[Group]]:
        return {size: self.question.groups(size, 0)[0] for size in SIZES}

    @cached_property
    def some(self) -> dict[int, list[Group]]:
        """Groups by their size: all of them, or a few where there are too many."""
        few = max(FEW // 5, min(FEW, MOST_NODES // len(walk(self.question.nodes))))
        return {
            size: groups if len(groups) <= MOST_LOOKED_AT else groups[:: len(groups) // few][:few]
            for size, groups in self._every.items()
        }

    @cached_property
    def all(self) -> dict[int, list[Group]] | None:
        """Every group of each size of which all are looked at. None where there is no such size."""
        found = {size: groups for size, groups in self.some.items() if len(groups) == len(self._every[size])}
        return found if self.question.states()[1] and found else None

    @cached_property
    def few_of(self) -> str | None:
        """Why only some of the groups are looked at; None where all are."""
        for size, groups in self.some.items():
            if len(groups) < len(self._every[size]):
                return f"only {len(groups)} of more than {MOST_LOOKED_AT} groups of {size} were tried"
        return None

    def values(self, node: Node, group: Group) -> list[Any] | None:
        """The exact value of a node for each rollout of a group; None where one is too close to call."""
        members, columns, moment = group
        key = (node.id, *moment.items())
        if key not in self._evaluators:
            read = set(walk([node]))
            places = [(at, column) for at, column in enumerate(self.question.fine) if column in read]
            self._evaluators[key] = [at for at, _ in places], GroupEvaluator(node, [c for _, c in places], moment)
        at_places, evaluate = self._evaluators[key]
        try:
            found = evaluate([tuple(row[at] for at in at_places) for row in members], columns)
        except Inexact:
            return None
        return None if any(value is UNKNOWN for value in found) else found

    def advantages(self, group: Group) -> list[Any] | None:
        """Less the batch's normalisation."""
        return self.values(self.question.root, group)

    def shaped(self, component: str, group: Group) -> list[Any] | None:
        return self.values(self.shaped_nodes[component], group)

    def each(self) -> Iterator[tuple[Group, list[Any] | None]]:
        """The groups of `some` and their advantages, which are worked out once."""
        for size, groups in self.some.items():
            for at, group in enumerate(groups):
                if (size, at) not in self._advantages:
                    self._advantages[size, at] = self.advantages(group)
                yield group, self._advantages[size, at]

    def elsewhere(
        self, other: SmallGroups, group: Group, *, whole: bool = False, of: Node | None = None
    ) -> list[Any] | None:
        """The advantages that another spec gives a group; None where it reads columns that this one does not.

        whole: with the batch's normalisation, which the group is. of: what is asked for instead of the advantage.
        """
        members, columns, moment = group
        names = [n.attributes[0] for n in self.question.fine]
        own = [n.attributes[0] for n in other.question.fine]
        if not (set(own) <= set(names) and set(other.question.coarse) <= set(columns)):
            return None
        rows = tuple(tuple(m[names.index(n)] for n in own) for m in members)
        root = of or (other.question.program.advantage if whole else other.question.root)
        return other.values(root, Group(rows, columns, moment))
