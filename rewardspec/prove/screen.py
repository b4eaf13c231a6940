"""Many groups at once, in floats: which of them certainly keep a guarantee, and by what margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from rewardspec.groups.moments import Moment
from rewardspec.groups.points import users_of
from rewardspec.groups.question import Group, Kind, Question
from rewardspec.groups.states import is_boundary, of_rollout
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import Node, walk
from rewardspec.prove.enclosures import Box, box, evaluate
from rewardspec.prove.margins import NOTHING, margin


class Screened(NamedTuple):
    """A guarantee in some groups.

    kept: for each group, whether it certainly keeps the guarantee. asks: whether a group may meet its condition.
    margins: the approximate margin of each group; None if not needed.
    """

    kept: list[bool]
    asks: bool
    margins: list[float] | None


class Screen:
    """Evaluates groups of a question in boxes of floats, and caches the boxes of its states."""

    def __init__(self, question: Question):
        self.question = question
        self.guarantees = question.program.guarantees
        self.states: dict[tuple[object, ...], dict[Node, Box]] = {}  # by moment
        self.asking: set[str] = set()  # guarantees whose condition some group may meet

    def screen(self, names: Sequence[str], rows: list[tuple[int, ...]], size: int, kind: Kind) -> dict[str, Screened]:
        """Guarantees, by name, in groups of one kind. rows: each group as indices of states."""
        place = np.array(rows).reshape(len(rows), size)
        start = {node: b[place] for node, b in self._of_states(kind.moment).items()}
        left = {name: Screened([False] * len(rows), False, None) for name in names if name in self.of_items}
        names = [name for name in names if name not in left]
        found = self._boxes([self.guarantees[name] for name in names], start, kind, size) if names else {}
        margins = self._margins(names, start, kind, size, len(rows)) if self.question.intervals and names else {}
        result = left
        for name in names:
            b = found[self.guarantees[name]]
            kept: list[bool] = np.all(np.broadcast_to((b.lo >= 1) | ~b.there, (len(rows), size)), axis=1).tolist()
            result[name] = Screened(kept, self._asks(name, start, kind, size), margins.get(name))
        return result

    def margins(self, name: str, groups: Sequence[Group], size: int) -> list[float]:
        """The approximate margin of each group; its rollouts can have any values, not only states."""
        result: list[float] = [inf] * len(groups)
        kinds: dict[tuple[object, ...], list[int]] = {}
        for i, group in enumerate(groups):
            kinds.setdefault((*group.columns.items(), *group.moment.items()), []).append(i)
        for places in kinds.values():
            start = {}
            for at, node in enumerate(self.question.fine):
                b = box([rollout[at] for i in places for rollout in groups[i].rollouts])
                start[node] = b.reshape(len(places), size)
            kind = Kind(groups[places[0]].columns, groups[places[0]].moment)
            found = self._margins([name], start, kind, size, len(places))[name]
            for i, value in zip(places, found, strict=True):
                result[i] = value
        return result

    def _boxes(self, roots: Sequence[Node], start: Mapping[Node, Box], kind: Kind, size: int) -> dict[Node, Box]:
        known = {"group_size": Fraction(size), "batch_size": Fraction(size), **kind.moment}
        take = GroupEvaluator(roots[0], [], known)
        return evaluate(roots, start, kind.columns, lambda name: take.take(name, size), size)

    def _of_states(self, moment: Moment) -> dict[Node, Box]:
        """Boxes of each state's values that nodes of more than one rollout read."""
        key = tuple(moment.items())
        if key not in self.states:
            states, _ = self.question.states()
            names = [name for name in self.guarantees if name not in self.of_items]
            roots = [of[name] for name in names for of in (self.guarantees, self.conditions)]
            nodes = walk(roots)
            own, users = of_rollout(nodes), users_of(nodes)
            ends = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, roots)]
            columns = list(self.question.fine)
            self.states[key] = {
                n: box([GroupEvaluator(n, columns, moment).values([state], {})[0] for state in states], same=True)
                for n in ends
            }
        return self.states[key]

    @cached_property
    def of_items(self) -> set[str]:
        """The guarantees that compare items of different rollouts: they have no boxes, and are left open."""
        found = set()
        for name in self.guarantees:
            roots = [self.guarantees[name], self.conditions[name]]
            nodes = walk(roots)
            own, users = of_rollout(nodes), users_of(nodes)
            if any(n.level.listed and (n not in own or is_boundary(n, own, users, roots)) for n in nodes):
                found.add(name)
        return found

    @cached_property
    def conditions(self) -> dict[str, Node]:
        """The margin of each guarantee: below `NOTHING` where a group meets its condition."""
        graph = self.question.program.graph
        return {name: graph.spread(margin(graph, node)) for name, node in self.guarantees.items()}

    def _asks(self, name: str, start: Mapping[Node, Box], kind: Kind, size: int) -> bool:
        if name not in self.asking:
            node = self.conditions[name]
            b = self._boxes([node], start, kind, size)[node]
            if bool((b.there & (b.lo < NOTHING)).any()):
                self.asking.add(name)
        return name in self.asking

    def _margins(
        self, names: Sequence[str], start: Mapping[Node, Box], kind: Kind, size: int, count: int
    ) -> dict[str, list[float]]:
        """The approximate margin of each guarantee in each of `count` groups."""
        nodes = [self.conditions[name] for name in names]
        found = self._boxes(nodes, start, kind, size)
        result = {}
        for name, node in zip(names, nodes, strict=True):
            b = found[node]
            with np.errstate(invalid="ignore"):  # an enclosure without ends has no middle
                middle = np.where(b.there & ~b.gone, b.lo / 2 + b.hi / 2, inf)
            result[name] = np.nan_to_num(np.broadcast_to(middle, (count, size)), nan=inf).min(1).tolist()
        return result
