"""The states of one rollout and of one group, with probabilities: counting starts here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import factorial
from typing import TypeVar

from rewardspec.groups.batch import over_batch
from rewardspec.groups.blocks import lists_of
from rewardspec.groups.joint import FEWEST_TRIED, MOST_JOINT_STATES, combinations, joint_values
from rewardspec.groups.parts import connected
from rewardspec.groups.points import EVENLY, Point, PolicyModel, column_points, users_of
from rewardspec.groups.renaming import Renaming, id_points
from rewardspec.ir.exact import Values
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, is_elementwise, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import Allowance
from rewardspec.ops.operators import REDUCTIONS, SCANS

Answer = TypeVar("Answer")
Rollouts = tuple[tuple[Values, ...], ...]  # of a group, each the values of `States.start`


@dataclass(frozen=True)
class States:
    """The states of one rollout, as values of `start`, and those of a group's own columns, with their probabilities.

    complete: whether these are all states. free: of a node of `start` that is an id, values that can be renamed.
    """

    start: tuple[Node, ...]
    rollouts: dict[tuple[Values, ...], float]
    groups: list[tuple[dict[str, Point], float]]
    complete: bool
    free: tuple[Node, tuple[Fraction, ...]] | None = None

    @cached_property
    def renaming(self) -> Renaming:
        """The states by what they are but for the names of ids."""
        if self.free is None:
            return Renaming([], list(range(len(self.rollouts))))
        node, values = self.free
        return Renaming.of(list(self.rollouts), self.start.index(node), values)

    def count(self, size: int) -> int:
        """The number of groups of `size` rollouts, up to their order and to names of ids."""
        return self.renaming.count(size) * len(self.groups)

    def each_group(self, size: int, most: int, seed: int = 0) -> Iterator[tuple[Rollouts, dict[str, Point], float]]:
        """All groups, or `most` drawn at random: rollouts, columns of the group, probability."""
        rollouts, weights = list(self.rollouts), list(self.rollouts.values())
        if self.count(size) <= most:
            for group, odds in self.groups:
                for places, ways in self.renaming.groups(size):
                    mass = odds * ways * factorial(size)
                    for place, n in Counter(places).items():
                        mass *= weights[place] ** n / factorial(n)
                    yield tuple(rollouts[i] for i in places), group, mass
            return
        draw = random.Random(seed)
        groups, odds_of = [group for group, _ in self.groups], [odds for _, odds in self.groups]
        for _ in range(most):
            yield tuple(draw.choices(rollouts, weights, k=size)), draw.choices(groups, odds_of)[0], 1 / most


def find_states(
    program: Program,
    roots: Sequence[Node],
    given: Mapping[str, Fraction],
    size: int,
    model: PolicyModel = EVENLY,
    start: Sequence[Node] | None = None,
    allowance: Allowance | None = None,
) -> States:
    """The states that the values of `roots` depend on.

    A state holds the values of `start`, not of columns: columns that give equal values are one state. By default these
    are the nodes that a rollout's own columns decide. size: of the groups. model: probabilities of column values;
    columns that it does not mention have equally likely values. allowance: if it is too small, some states are drawn at
    random.
    """
    allowance = allowance or Allowance()
    nodes = walk(roots)
    points, coarse, complete = column_points(program, roots, size, model)
    own = of_rollout(nodes)
    if start is None:
        users = users_of(nodes)
        start = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, roots)]
        start += lengths_besides(program.graph, nodes, own, start)
    blocks = []
    for members in connected(start):
        values, all_cases = joint_values(program.graph, members, points, given, allowance, model.items)
        complete = complete and all_cases
        blocks.append((members, values))
    order = [n for members, _ in blocks for n in members]
    joint, all_cases = combinations([list(values.items()) for _, values in blocks], MOST_JOINT_STATES)
    groups, all_groups = combinations([list(values.items()) for values in coarse.values()], MOST_JOINT_STATES)
    place = [order.index(n) for n in start]
    free = next((pair for pair in id_points(nodes, size, model.items).free.items() if pair[0] in start), None)
    rollouts: dict[tuple[Values, ...], float] = {}
    for parts, mass in joint:
        row = [v for part in parts for v in part]
        key = tuple(row[p] for p in place)
        rollouts[key] = rollouts.get(key, 0.0) + mass
    return States(
        tuple(start),
        rollouts,
        [(dict(zip(coarse, state, strict=True)), mass) for state, mass in groups],
        complete and all_cases and all_groups,
        free,
    )


def evaluate_groups(
    states: States,
    evaluate: Callable[[Rollouts, dict[str, Point]], Answer],
    size: int,
    most: int,
    seed: int,
    allowance: Allowance,
) -> tuple[list[tuple[Answer, float]], bool]:
    """`evaluate(rollouts, columns)` of each group, with probabilities, and whether these are all groups.

    If there are more than `most`, that many are drawn at random; if the allowance is too small, fewer.
    """
    found: list[tuple[Answer, float]] = []
    own = allowance.part()
    for members, group, mass in states.each_group(size, most, seed):
        if own.is_spent and len(found) >= FEWEST_TRIED:
            if states.count(size) > most:  # drawn at random
                return [(value, mass * most / len(found)) for value, mass in found], False
            few = states.each_group(size, max(FEWEST_TRIED // 2, len(found) // 4), seed)
            return [(evaluate(members, group), mass) for members, group, mass in few], False
        found.append((evaluate(members, group), mass))
    return found, states.count(size) <= most


def lengths_besides(graph: Graph, nodes: Sequence[Node], own: set[Node], start: Sequence[Node]) -> list[Node]:
    """The places of items of lists that values besides a rollout's own need, and that no node of `start` tells."""
    known = {n.level for n in start}
    asked = [n for n in nodes if n not in own or n.op in ("const", "missing")]
    return [graph.position(level) for level in lists_of(asked) if level not in known]


def of_rollout(nodes: Sequence[Node]) -> set[Node]:
    """Nodes that depend on a rollout's own columns only, and on the items of its lists."""
    own: set[Node] = set()
    for node in nodes:
        alone = node.op in ("const", "missing", "position") or (
            node.op == "given" and node.level is Level.BATCH and not over_batch(node)
        )
        column = node.op == "column" and node.level >= Level.ROLLOUT
        of_items = node.op in SCANS or (node.op in REDUCTIONS and node.attributes[0] is Level.ROLLOUT)
        inside = is_elementwise(node) or node.op == "required" or of_items
        if alone or column or (inside and all(a in own for a in node.args)):
            own.add(node)
    return own


def is_boundary(node: Node, own: set[Node], users: dict[Node, list[Node]], roots: Sequence[Node]) -> bool:
    return node.level >= Level.ROLLOUT and (node in roots or any(u not in own for u in users.get(node, [])))
