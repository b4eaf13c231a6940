"""A spec with the groups to try on it, before the batch's normalisation.

`verify`, `diff` and the lint rules try the same small groups. Rollouts with different columns but equal values are one
case, and a few moments of training represent the run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import Any, NamedTuple

from rewardspec.groups.batch import normalisation, over_batch, without_batch
from rewardspec.groups.blocks import blocks_of, lists_of, read_of
from rewardspec.groups.moments import Moment, moments_of
from rewardspec.groups.points import ITEMS, Point, PolicyModel, column_points, users_of
from rewardspec.groups.renaming import Renaming, id_points
from rewardspec.groups.states import is_boundary, lengths_besides, of_rollout
from rewardspec.ir.checks import demand, find_checks
from rewardspec.ir.exact import GroupEvaluator, Values, items_of
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level, finest, interval
from rewardspec.ops.effort import Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.spec import Spec

MOST_TRIED_GROUPS = 200_000  # of one size; if there are more, some are drawn at random
MOST_ROLLOUT_STATES = 4096  # of one rollout
MOST_KINDS = 200_000  # of groups; if there are more, a hundredth as many are drawn at random
MOST_NODE_VALUES = 60_000_000  # of nodes, in all groups of one size
FEWEST_ROLLOUTS = 256  # that are tried at any cost


Places = tuple[int, ...]  # the rollouts of a group, as indices into `Question.states()`
Rollout = tuple[Any, ...]  # its values of `Question.fine`, in that order


class Kind(NamedTuple):
    """What the rollouts of a group share: the columns of group and batch level, and the moment."""

    columns: dict[str, Point]
    moment: Moment


class Group(NamedTuple):
    """A group of rollouts with its kind."""

    rollouts: tuple[Rollout, ...]
    columns: dict[str, Point]
    moment: Moment


@dataclass
class Question:
    """A spec, its advantage and guarantees as functions of one group, and the groups to try.

    root: the advantage before the batch's normalisation. normalisation: what that can do to it: "none", "scale" or
    "shift" (and scale). most_tried: rows of columns to try for the states of one rollout. gaps: also try columns as
    missing that may be missing while their gate is closed. largest: the size of the largest groups to try, which tells
    how many different ids they can have. items: of a list at most.

    nodes: the advantage, shaped components, guarantees and outcome. lists: those that the nodes read. fine: columns of
    rollout level with their points, then of each list its columns, with the points of an item, and the places of its
    items; coarse: columns of group and batch level, by name. moments: of training. complete: whether points and moments
    represent all values, of lists of up to `items` items; intervals: whether they do not because the domain of a
    rollout column or an item is an interval; sampled: because that of a coarse column or a state is.
    """

    spec: Spec
    program: Program
    root: Node
    normalisation: str
    most_tried: int = 16 * MOST_ROLLOUT_STATES
    gaps: bool = False
    largest: int = 3
    items: int = ITEMS

    @classmethod
    def of(
        cls,
        spec: Spec,
        most_tried: int = 16 * MOST_ROLLOUT_STATES,
        eps: Fraction = Fraction(0),
        gaps: bool = False,
        largest: int = 3,
        items: int = ITEMS,
    ) -> Question:
        """The question about a spec with this eps. Raises SpecError if the spec has an error with it."""
        program = spec.varied(given={**spec.declarations.given, "eps": eps}, decide=_before_batch).program
        root = _before_batch(program.graph, program.advantage)
        return cls(
            spec, program, root, normalisation(program.graph, program.advantage), most_tried, gaps, largest, items
        )

    def __post_init__(self) -> None:
        program = self.program
        shaped = [component.shaped for component in program.components]
        right = [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
        self.nodes = [self.root, *shaped, *program.guarantees.values(), *right]
        model, read = PolicyModel(items=self.items), walk(self.nodes)
        fine, coarse, complete = column_points(program, self.nodes, self.largest, model, self.gaps)
        self.lists = lists_of(read)
        self.blocks = blocks_of(program.graph, read, fine, self.items)
        self.fine = {node: list(fine.get(node, ())) for block in self.blocks for node in block.nodes}
        self.coarse = {name: list(points) for name, points in coarse.items()}
        self.moments, self.all_moments = moments_of(self.nodes)
        self.kind_count = prod(map(len, self.coarse.values())) * len(self.moments)
        self.complete = complete and self.all_moments and self.kind_count <= MOST_KINDS
        self.intervals = not complete and any(n.domain.values is None and not n.domain.ids for n in fine)
        domains = [program.column(name).domain for name in coarse]
        self.sampled = not complete and any(d.values is None and not d.ids for d in domains)

    @cached_property
    def ends(self) -> Node | None:
        """The condition that the run raises an error on a group; None if no group can raise one by itself."""
        graph = self.program.graph
        roots = [n for n in self.program.results if not any(over_batch(a) for a in walk([n]))]
        found = [check.bad for check in find_checks(graph, [self.root, *roots])]
        if self.normalisation == "none" and self.root.domain.missing:  # a missing advantage is an error
            found.append(graph.negation(graph.present(self.root)))
        alone = [bad for bad in found if not any(over_batch(n) for n in walk([bad]))]
        every = graph.const(1)
        found = [
            graph.reduce("any", bad, every, None, Level.ROLLOUT) if bad.level.listed else graph.spread(bad)
            for bad in alone
        ]
        return graph.any_of(found) if found else None

    # Groups --------------------------------------------------------------------------------------

    def states(self) -> tuple[list[Rollout], bool]:
        """The rollouts to try, one of each set with equal values, and whether these are all."""
        return self._states

    @cached_property
    def _states(self) -> tuple[list[Rollout], bool]:
        complete = prod(block.count for block in self.blocks) <= self.most_tried
        if complete:
            rows = [_row(parts) for parts in product(*([joint for joint, _ in block.all()] for block in self.blocks))]
        else:
            draw = random.Random(0)
            few = min(MOST_ROLLOUT_STATES, self.most_tried // 8)
            drawn = (block.drawn(draw, few, evenly=True) for block in self.blocks)
            rows = [_row(parts) for parts in zip(*drawn, strict=True)]
        found_by_row = self._rollout_values(rows)
        if found_by_row is None:
            rows, complete = random.Random(0).sample(rows, min(FEWEST_ROLLOUTS, len(rows))), False
            found_by_row = [*rows]
        kept: dict[tuple[object, ...], Rollout] = {}
        for row, worth in zip(rows, found_by_row, strict=True):
            kept.setdefault(worth, row)
        found = list(kept.values())
        if len(found) > MOST_ROLLOUT_STATES:
            return random.Random(0).sample(found, MOST_ROLLOUT_STATES), False
        return found, complete

    def _rollout_values(self, rows: list[Rollout]) -> list[tuple[object, ...]] | None:
        """The values of each rollout that the advantage reads: of its own nodes, while the gates before them are open.

        None if they take too long to compute.
        """
        allowance = Allowance()
        nodes = walk(self.nodes)
        own, users = of_rollout(nodes), users_of(nodes)
        ends = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, self.nodes)]
        lengths = lengths_besides(self.program.graph, nodes, own, [])
        asked = demand(self.program.graph, self.nodes, nodes)
        gates = {n: [[c for c in path if c in own] for path in asked[n]] for n in ends} | {n: [[]] for n in lengths}
        ends = list(dict.fromkeys([*ends, *lengths]))
        wanted = list(dict.fromkeys([*ends, *(c for paths in gates.values() for path in paths for c in path)]))
        if any(n.op == "given" for n in walk(wanted)):
            return list(rows)
        values: dict[Node, list[object]] = {}
        number: list[dict[Values, int]] = [{} for _ in self.fine]  # integers are compared fast
        places = [tuple(of.setdefault(v, len(of)) for of, v in zip(number, row, strict=True)) for row in rows]
        try:
            for n in wanted:
                read = read_of(n, self.fine)
                of_each = [tuple(row[at] for at, _ in read) for row in places]
                first_of = dict(zip(reversed(of_each), reversed(rows), strict=True))
                kinds = [tuple(row[at] for at, _ in read) for row in first_of.values()]
                evaluate, found = GroupEvaluator(n, [c for _, c in read], {}, floats=False), []
                for first in range(0, len(kinds), FEWEST_ROLLOUTS):
                    if allowance.is_spent:
                        return None
                    found += evaluate(kinds[first : first + FEWEST_ROLLOUTS], {})
                value_of = dict(zip(first_of, found, strict=True))
                values[n] = [value_of[kind] for kind in of_each]
        except Inexact:
            return list(rows)
        return [
            tuple(
                values[n][i] if any(all(_holds(values[c][i]) for c in path) for path in gates[n]) else "never asked for"
                for n in ends
            )
            for i in range(len(rows))
        ]

    def groups(self, size: int, seed: int) -> tuple[list[Group], bool]:
        """The groups of a size to try, and whether these are all."""
        found, complete = self.places(size, seed)
        return [self._group(row, kind) for kind, rows in zip(self.kinds, found, strict=True) for row in rows], complete

    def _group(self, row: Places, kind: Kind) -> Group:
        states, _ = self.states()
        return Group(tuple(states[i] for i in row), *kind)

    def few_groups(self, size: int, few: int, most: int) -> tuple[list[Group], bool]:
        """All groups of a size to try, or if there are more than `most` a few of them, evenly apart; and whether all.

        The others are not made.
        """
        count, kinds = self._renaming.count(size), self.kinds
        total = count * len(kinds)
        if total <= most or total > self._most_groups(size):
            groups, _ = self.groups(size, 0)
            return (groups, True) if len(groups) <= most else (groups[:: len(groups) // few][:few], False)
        asked = range(0, total, total // few)[:few]
        places = {at % count for at in asked}
        rows = {at: row for at, (row, _) in enumerate(self._renaming.groups(size)) if at in places}
        return [self._group(rows[at % count], kinds[at // count]) for at in asked], False

    @cached_property
    def _renaming(self) -> Renaming:
        """The states by what they are but for the names of ids."""
        states, _ = self.states()
        names = [n for n in id_points(walk(self.nodes), self.largest, self.items).free.items() if n[0] in self.fine]
        if not names:
            return Renaming([], list(range(len(states))))
        node, free = names[0]
        return Renaming.of(states, list(self.fine).index(node), free)

    @cached_property
    def kinds(self) -> list[Kind]:
        """The kinds of groups: all values of group and batch columns, at all moments; some of them, if too many."""
        if self.kind_count > MOST_KINDS:
            draw = random.Random(0)
            return [
                Kind({name: draw.choice(points) for name, points in self.coarse.items()}, draw.choice(self.moments))
                for _ in range(MOST_KINDS // 100)
            ]
        return [
            Kind(dict(zip(self.coarse, values, strict=True)), moment)
            for values in product(*self.coarse.values())
            for moment in self.moments
        ]

    def places(self, size: int, seed: int) -> tuple[list[list[Places]], bool]:
        """The groups to try of each of the `kinds`, rollouts as indices into `states()`, and whether these are all."""
        (states, complete), renaming, kinds = self.states(), self._renaming, self.kinds
        complete = complete and (size <= self.largest or not any(n.domain.ids for n in self.fine))
        count = renaming.count(size)
        if count * len(kinds) <= self._most_groups(size):
            rows = [row for row, _ in renaming.groups(size)]
            return [rows] * len(kinds), complete and self.complete
        draw = random.Random(seed)
        places = range(len(states))
        few = [
            tuple(draw.choices(draw.sample(places, min(3, len(states))), k=size))
            for _ in range(MOST_TRIED_GROUPS // 20)
        ]
        many = [tuple(draw.choices(places, k=size)) for _ in range(MOST_TRIED_GROUPS // 20)]
        found: list[list[Places]] = [[] for _ in kinds]
        for row in [*few, *many]:
            found[draw.randrange(len(kinds))].append(row)
        return found, False

    def _most_groups(self, size: int) -> int:
        """The most groups of a size that are all tried."""
        return min(MOST_TRIED_GROUPS, MOST_NODE_VALUES // (size * len(walk(self.nodes))))


def _row(parts: Sequence[tuple[Values, ...]]) -> Rollout:
    return tuple(v for part in parts for v in part)


def _holds(value: Any) -> bool:
    """Whether a condition holds, or does for some item."""
    return any(v == 1 for v in items_of(value))


def _before_batch(graph: Graph, advantage: Node) -> Node:
    """`advantage` as guarantees read it: before the batch's normalisation, which can give it any value."""
    root, _ = without_batch(graph, advantage)
    if normalisation(graph, advantage) == "none":
        return root
    return graph.node("required", (root,), (), finest((Level.ROLLOUT, root.level)), interval(-inf, inf))
