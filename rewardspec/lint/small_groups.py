"""Groups of two and of three, and the exact values of nodes in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from rewardspec.groups.blocks import read_of
from rewardspec.groups.question import Group, Question
from rewardspec.ir.exact import GroupEvaluator, is_unknown
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.items import shown_name
from rewardspec.ops.exact import Inexact

SIZES = (2, 3)
MOST_SMALL_GROUPS = 600  # groups of one size; if there are more, a few are tried, for claims that one group proves
FEW = 61
MOST_NODES = 40_000  # nodes to evaluate, over these few groups


class SmallGroups:
    """The groups of a question, and the values of nodes in them. Evaluators are kept for the next group."""

    def __init__(self, question: Question):
        self.question = question
        self.shaped_nodes = {component.name: component.shaped for component in question.program.components}
        self._evaluators: dict[tuple[Any, ...], tuple[list[int], GroupEvaluator]] = {}
        self._advantages: dict[tuple[int, int], list[Any] | None] = {}

    @cached_property
    def _tried(self) -> dict[int, tuple[list[Group], bool]]:
        """Groups by their size, and whether these are all."""
        few = max(FEW // 5, min(FEW, MOST_NODES // len(walk(self.question.nodes))))
        return {size: self.question.few_groups(size, few, MOST_SMALL_GROUPS) for size in SIZES}

    @cached_property
    def some(self) -> dict[int, list[Group]]:
        """Groups by their size: all of them, or a few if there are too many."""
        return {size: groups for size, (groups, _) in self._tried.items()}

    @cached_property
    def all(self) -> dict[int, list[Group]] | None:
        """The groups of each size of which all are tried. None if there is no such size."""
        found = {size: groups for size, (groups, is_all) in self._tried.items() if is_all}
        return found if self.question.states()[1] and found else None

    @cached_property
    def few_of(self) -> str | None:
        """Why only some of the groups are tried; None if all are."""
        for size, (groups, is_all) in self._tried.items():
            if not is_all:
                return f"only {len(groups)} of more than {MOST_SMALL_GROUPS} groups of {size} were tried"
        return None

    def values(self, node: Node, group: Group) -> list[Any] | None:
        """[rollouts] the exact values of a node in a group; None if one has no exact form."""
        members, columns, moment = group
        key = (node.id, *moment.items())
        if key not in self._evaluators:
            places = read_of(node, self.question.fine)
            self._evaluators[key] = [at for at, _ in places], GroupEvaluator(node, [c for _, c in places], moment)
        at_places, evaluate = self._evaluators[key]
        try:
            found = evaluate([tuple(row[at] for at in at_places) for row in members], columns)
        except Inexact:
            return None
        return None if any(is_unknown(value) for value in found) else found

    def advantages(self, group: Group) -> list[Any] | None:
        """[rollouts] the advantages before the batch's normalisation; None if one has no exact form."""
        return self.values(self.question.root, group)

    def shaped(self, component: str, group: Group) -> list[Any] | None:
        return self.values(self.shaped_nodes[component], group)

    def each(self) -> Iterator[tuple[Group, list[Any] | None]]:
        """The groups of `some` and their advantages, which are computed once."""
        for size, groups in self.some.items():
            for at, group in enumerate(groups):
                if (size, at) not in self._advantages:
                    self._advantages[size, at] = self.advantages(group)
                yield group, self._advantages[size, at]

    def elsewhere(
        self, other: SmallGroups, group: Group, *, whole: bool = False, of: Node | None = None
    ) -> list[Any] | None:
        """[rollouts] the advantages of a group under another spec; None if that reads columns that this one does not.

        whole: after the batch's normalisation, with the group as the whole batch. of: a node in place of the advantage.
        """
        members, columns, moment = group
        names = [shown_name(n) for n in self.question.fine]
        own = [shown_name(n) for n in other.question.fine]
        if not (set(own) <= set(names) and set(other.question.coarse) <= set(columns)):
            return None
        rows = tuple(tuple(m[names.index(n)] for n in own) for m in members)
        root = of or (other.question.program.advantage if whole else other.question.root)
        return other.values(root, Group(rows, columns, moment))
