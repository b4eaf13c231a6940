"""A spec as groups of rollouts are asked about it: its nodes less the batch's normalisation, and all groups to try.

`verify`, `diff` and the lint rules look at the same small groups: of what a rollout can measure one of those that lead
to the same values, at the moments of training that stand for all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from math import comb, inf
from typing import NamedTuple

from rewardspec.groups.batch import batch_step, over_batch, without_batch
from rewardspec.groups.moments import Moment, moments_of
from rewardspec.groups.points import Point, column_points, users_of
from rewardspec.groups.states import is_boundary, of_rollout
from rewardspec.ir.checks import demand, find_checks
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level, interval
from rewardspec.ops.effort import Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.spec import Spec

MOST_TRIED_GROUPS = 200_000  # of one size that are tried; beyond them as many are drawn
MOST_ROLLOUT_STATES = 4096  # of one rollout
MOST_NODE_VALUES = 60_000_000  # of nodes, in all groups of one size
FEWEST_ROLLOUTS = 256  # rollouts that are looked at however dear they are


Places = tuple[int, ...]  # rollouts of a group as places in `Question.states()`
Rollout = tuple[Point, ...]  # its values of `Question.fine`, in that order


class Kind(NamedTuple):
    """What groups have in common: the columns that a group or the batch has one value of, and the moment."""

    columns: dict[str, Point]
    moment: Moment


class Group(NamedTuple):
    """A group of rollouts, with what all of them have in common."""

    rollouts: tuple[Rollout, ...]
    columns: dict[str, Point]
    moment: Moment


@dataclass
class Question:
    """A spec with its advantage and guarantees as one group decides them, and what groups there are.

    root: the advantage before the batch's normalisation; step: what that may do: "none", "scale" or "shift" as well.
    most_tried: rows of columns that are looked through for what one rollout can be. gaps: whether what a closed gate
    lets be missing is tried as missing.

    nodes: all that is asked about. fine: columns of rollouts, each with values that stand for all of it; coarse: those
    of groups and batches, by name. moments: of training. complete: whether points and moments stand for all;
    intervals: whether they do not because a domain is an interval.
    """

    spec: Spec
    program: Program
    root: Node
    step: str
    most_tried: int = 16 * MOST_ROLLOUT_STATES
    gaps: bool = False

    @classmethod
    def of(
        cls, spec: Spec, most_tried: int = 16 * MOST_ROLLOUT_STATES, eps: Fraction = Fraction(0), gaps: bool = False
    ) -> Question:
        """The question about a spec. Raises SpecError for one that comes to nothing with this eps."""
        program = spec.varied(given={**spec.declarations.given, "eps": eps}, decide=_told).program
        root = _told(program.graph, program.advantage)
        return cls(spec, program, root, batch_step(program.graph, program.advantage), most_tried, gaps)

    def __post_init__(self) -> None:
        program = self.program
        shaped = [component.shaped for component in program.components]
        right = [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
        self.nodes = [self.root, *shaped, *program.guarantees.values(), *right]
        fine, coarse, complete = column_points(program, self.nodes, gaps=self.gaps)
        self.fine = {node: list(points) for node, points in fine.items()}
        self.coarse = {name: list(points) for name, points in coarse.items()}
        self.moments, self.all_moments = moments_of(self.nodes)
        self.complete = complete and self.all_moments
        self.intervals = not complete and any(n.domain.values is None for n in fine)

    @cached_property
    def ends(self) -> Node | None:
        """Whether the run ends with an error on a group, as far as the group decides that."""
        graph = self.program.graph
        roots = [n for n in self.program.results if not any(over_batch(a) for a in walk([n]))]
        found = [check.bad for check in find_checks(graph, [self.root, *roots])]
        if self.step == "none" and self.root.domain.missing:  # an advantage that is missing is an error
            found.append(graph.negation(graph.present(self.root)))
        found = [graph.spread(bad) for bad in found if not any(over_batch(n) for n in walk([bad]))]
        return graph.any_of(found) if found else None

    # Groups --------------------------------------------------------------------------------------

    def states(self) -> tuple[list[Rollout], bool]:
        """What one rollout can measure, one of those that lead to the same values, and whether that is all."""
        return self._states

    @cached_property
    def _states(self) -> tuple[list[Rollout], bool]:
        points = list(self.fine.values())
        count = 1
        for values in points:
            count *= len(values)
        if count <= self.most_tried:
            rows, complete = list(product(*points)), True
        else:
            draw = random.Random(0)
            few = min(MOST_ROLLOUT_STATES, self.most_tried // 8)
            rows = list(zip(*(draw.choices(values, k=few) for values in points), strict=True))
            complete = False
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
        """What of each rollout is ever asked for: the values of its own nodes, where the gates before them are open.

        None where it takes too much to find them.
        """
        allowance = Allowance()
        nodes = walk(self.nodes)
        own, users = of_rollout(nodes), users_of(nodes)
        ends = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, self.nodes)]
        asked = demand(self.program.graph, self.nodes, nodes)
        gates = {n: [[c for c in path if c in own] for path in asked[n]] for n in ends}
        wanted = list(dict.fromkeys([*ends, *(c for paths in gates.values() for path in paths for c in path)]))
        if any(n.op == "given" for n in walk(wanted)):
            return list(rows)
        values: dict[Node, list[object]] = {}
        number = [{v: i for i, v in enumerate(points)} for points in self.fine.values()]
        places = [tuple(map(dict.__getitem__, number, row)) for row in rows]  # whole numbers are soon told apart
        try:
            for n in wanted:
                read = [(at, c) for at, c in enumerate(self.fine) if c in walk([n])]
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
                values[n][i] if any(all(values[c][i] == 1 for c in path) for path in gates[n]) else "never asked for"
                for n in ends
            )
            for i in range(len(rows))
        ]

    def groups(self, size: int, seed: int) -> tuple[list[Group], bool]:
        """All groups of a size, or as many as are tried, and whether these are all."""
        states, _ = self.states()
        found, complete = self.places(size, seed)
        return [
            Group(tuple(states[i] for i in row), *kind)
            for kind, rows in zip(self.kinds, found, strict=True)
            for row in rows
        ], complete

    @cached_property
    def kinds(self) -> list[Kind]:
        """All that the rollouts of a group can have in common."""
        return [
            Kind(dict(zip(self.coarse, values, strict=True)), moment)
            for values in product(*self.coarse.values())
            for moment in self.moments
        ]

    def places(self, size: int, seed: int) -> tuple[list[list[Places]], bool]:
        """Groups for each of the `kinds`, a rollout as its place in `states()`, and whether these are all."""
        states, complete = self.states()
        count, kinds = comb(len(states) + size - 1, size), self.kinds
        most = min(MOST_TRIED_GROUPS, MOST_NODE_VALUES // (size * len(walk(self.nodes))))
        if count * len(kinds) <= most:
            rows = list(combinations_with_replacement(range(len(states)), size))
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


def _told(graph: Graph, advantage: Node) -> Node:
    """What a guarantee is told of the advantage: its value before the batch's normalisation, which may go anywhere."""
    root, _ = without_batch(graph, advantage)
    if batch_step(graph, advantage) == "none":
        return root
    return graph.node("required", (root,), (), Level.ROLLOUT, interval(-inf, inf))
