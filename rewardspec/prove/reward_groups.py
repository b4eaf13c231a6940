"""Distinct groups of rewards: multisets of the rollouts' reward vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb

from rewardspec.groups.joint import joint_values
from rewardspec.groups.parts import connected
from rewardspec.groups.points import EVENLY, PolicyModel, column_points
from rewardspec.groups.states import evaluate_groups, find_states, of_rollout
from rewardspec.ir.exact import GroupEvaluator, Values, is_unknown, of_each
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import Allowance
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.ops.real import Pool, TooClose

Given = Mapping[str, Fraction]  # `step`, `total_steps` and `progress`

MOST_COUNTED_GROUPS = 60_000  # groups of one part that are tried; if there are more, as many are drawn at random
MOST_REAL_ROLLOUTS = 20_000  # rollouts in them, where values are not sums of roots, which is slower
MOST_KINDS = 12  # of groups, whose overlaps are counted


def count_reward_groups(
    program: Program, size: int, given: Given, allowance: Allowance, model: PolicyModel = EVENLY
) -> tuple[int, bool]:
    """The number of distinct multisets of shaped reward vectors, and whether it is exact."""
    shaped = [component.shaped for component in program.components]
    nodes = walk(shaped)
    own = of_rollout(nodes)
    if any(n not in own and (n.op in REDUCTIONS or n.op in ("given", "copies")) for n in nodes):
        try:
            return _of_groups(program, shaped, size, given, allowance, model)
        except TooClose:
            return 1, False
    if any(_is_coarse_column(n) for n in nodes):
        try:
            return _of_kinds(program, shaped, size, given, allowance, model)
        except TooClose:
            return 1, False
    points, _, complete = column_points(program, shaped, size, model)
    count = 1
    for members in connected(shaped):
        found, all_cases = joint_values(program.graph, members, points, given, allowance, model.items)
        pools = [Pool() for _ in members]
        apart = [all(not is_unknown(of_each(p.canonical, v)) for p, v in zip(pools, key, strict=True)) for key in found]
        count, complete = count * max(1, sum(apart)), complete and all_cases and all(apart)
    return comb(count + size - 1, size), complete


def most_groups(nodes: Sequence[Node], size: int) -> int:
    """How many groups to try: fewer where the nodes need slow arithmetic."""
    return MOST_REAL_ROLLOUTS // size if any(n.operator.real for n in walk(nodes)) else MOST_COUNTED_GROUPS


def _is_coarse_column(node: Node) -> bool:
    return node.op == "column" and node.level < Level.ROLLOUT


def _of_groups(
    program: Program, shaped: list[Node], size: int, given: Given, allowance: Allowance, model: PolicyModel
) -> tuple[int, bool]:
    """The count where a component depends on its group: one group after another."""
    states = find_states(program, shaped, given, size, model, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given) for node in shaped]
    most = most_groups(shaped, size)
    groups, is_all = evaluate_groups(
        states, lambda rollouts, group: [e(rollouts, group) for e in evaluators], size, most, 0, allowance
    )
    found: set[frozenset[tuple[tuple[Values, ...], int]]] = set()
    complete = states.complete and is_all
    for columns, _ in groups:
        if any(is_unknown(v) for column in columns for v in column):
            complete = False
        else:
            found.add(frozenset(Counter(zip(*columns, strict=True)).items()))
    return max(1, len(found)), complete


def _of_kinds(
    program: Program, shaped: list[Node], size: int, given: Given, allowance: Allowance, model: PolicyModel
) -> tuple[int, bool]:
    """The count where columns of group level make several kinds of groups: reward groups of two kinds count once."""
    states = find_states(program, shaped, given, size, model, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given) for node in shaped]
    sets = {
        frozenset(tuple(e([rollout], group)[0] for e in evaluators) for rollout in states.rollouts)
        for group, _ in states.groups
    }
    kinds = [kind for kind in sets if not any(kind < other for other in sets)]
    if len(kinds) > MOST_KINDS:
        return max(comb(len(kind) + size - 1, size) for kind in kinds), False
    total = 0
    for n in range(1, len(kinds) + 1):
        for several in combinations(kinds, n):
            common = len(frozenset.intersection(*several))
            total += (-1) ** (n + 1) * (comb(common + size - 1, size) if common else 0)
    return total, states.complete
