"""What one rollout and one group can be: the ground that counting stands on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb, factorial
from typing import TypeVar

from rewardspec.groups.batch import over_batch
from rewardspec.groups.joint import FEWEST_TRIED, MOST_JOINT_STATES, combinations, joint_values
from rewardspec.groups.parts import connected
from rewardspec.groups.points import EVENLY, Point, PolicyModel, column_points, users_of
from rewardspec.ir.exact import Value
from rewardspec.ir.node import Node, is_elementwise, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import Allowance

Answer = TypeVar("Answer")
Rollouts = tuple[tuple[Value, ...], ...]  # of a group, each the values of `States.start`


@dataclass(frozen=True)
class States:
    """What one rollout can be, as values of `start`, and what a group can be, with their probabilities.

    complete: whether these are all the cases that differ.
    """

    start: tuple[Node, ...]
    rollouts: dict[tuple[Value, ...], float]
    groups: list[tuple[dict[str, Point], float]]
    complete: bool

    def count(self, size: int) -> int:
        """How many groups of `size` rollouts there are, up to the order of the rollouts."""
        return comb(len(self.rollouts) + size - 1, size) * len(self.groups)

    def each_group(self, size: int, most: int, seed: int = 0) -> Iterator[tuple[Rollouts, dict[str, Point], float]]:
        """All groups with their probabilities, or `most` drawn by them: rollouts, columns of the group, mass."""
        rollouts, weights = list(self.rollouts), list(self.rollouts.values())
        if self.count(size) <= most:
            for group, odds in self.groups:
                for places in combinations_with_replacement(range(len(rollouts)), size):
                    mass = odds * factorial(size)
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
    model: PolicyModel = EVENLY,
    start: Sequence[Node] | None = None,
    allowance: Allowance | None = None,
) -> States:
    """The states that the values of `roots` depend on.

    Nodes that one rollout's own columns decide are looked at as a whole (`start`, if not said), so that
    columns which lead to the same values are one state. model: columns that it does not mention have each
    of their values equally often. allowance: where it does not last, fewer states are looked at.
    """
    allowance = allowance or Allowance()
    nodes = walk(roots)
    points, coarse, complete = column_points(program, roots, model)
    own = of_rollout(nodes)
    if start is None:
        users = users_of(nodes)
        start = tuple(n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, roots))
    blocks = []
    for members in connected(start):
        values, all_cases = joint_values(program.graph, members, points, given, allowance)
        complete = complete and all_cases
        blocks.append((members, values))
    order = [n for members, _ in blocks for n in members]
    joint, all_cases = combinations([list(values.items()) for _, values in blocks], MOST_JOINT_STATES)
    groups, all_groups = combinations([list(values.items()) for values in coarse.values()], MOST_JOINT_STATES)
    place = [order.index(n) for n in start]
    rollouts: dict[tuple[Value, ...], float] = {}
    for parts, mass in joint:
        row = [v for part in parts for v in part]
        key = tuple(row[p] for p in place)
        rollouts[key] = rollouts.get(key, 0.0) + mass
    return States(
        tuple(start),
        rollouts,
        [(dict(zip(coarse, state, strict=True)), mass) for state, mass in groups],
        complete and all_cases and all_groups,
    )


def asked_of_groups(
    states: States,
    ask: Callable[[Rollouts, dict[str, Point]], Answer],
    size: int,
    most: int,
    seed: int,
    allowance: Allowance,
) -> tuple[list[tuple[Answer, float]], bool]:
    """What groups answer, with their probabilities, and whether these are all groups or `most` that were drawn.

    Where the allowance does not last for all, a part of as many is drawn.
    """
    found: list[tuple[Answer, float]] = []
    own = allowance.part()
    for members, group, mass in states.each_group(size, most, seed):
        if own.is_spent and len(found) >= FEWEST_TRIED:
            if states.count(size) > most:  # they were drawn
                return [(value, mass * most / len(found)) for value, mass in found], False
            few = states.each_group(size, max(FEWEST_TRIED // 2, len(found) // 4), seed)
            return [(ask(members, group), mass) for members, group, mass in few], False
        found.append((ask(members, group), mass))
    return found, states.count(size) <= most


def of_rollout(nodes: Sequence[Node]) -> set[Node]:
    """Nodes whose value a rollout's own columns decide."""
    own: set[Node] = set()
    for node in nodes:
        alone = node.op in ("const", "missing") or (
            node.op == "given" and node.level is Level.BATCH and not over_batch(node)
        )
        column = node.op == "column" and node.level is Level.ROLLOUT
        if alone or column or ((is_elementwise(node) or node.op == "required") and all(a in own for a in node.args)):
            own.add(node)
    return own


def is_boundary(node: Node, own: set[Node], users: dict[Node, list[Node]], roots: Sequence[Node]) -> bool:
    return node.level is Level.ROLLOUT and (node in roots or any(u not in own for u in users.get(node, [])))
