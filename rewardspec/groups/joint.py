"""Joint values of the nodes of one rollout, with probabilities."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import lcm, prod
from typing import Any, TypeVar

from rewardspec.groups.blocks import Block, blocks_of
from rewardspec.groups.parts import independent_terms
from rewardspec.groups.points import Odds
from rewardspec.ir.exact import GroupEvaluator, Value, Values, is_unknown, of_each
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk
from rewardspec.ops.effort import Allowance, spend, spent, weight
from rewardspec.ops.real import Pool

T = TypeVar("T")
Weighed = list[tuple[tuple[T, ...], float]]  # combinations with their probabilities
Joint = dict[tuple[Values, ...], float]  # values of nodes with their probabilities

MOST_JOINT_STATES = 4096  # of one rollout, in one part
MOST_COLUMN_STATES = 65_536  # combinations of column values that are tried for one part
FEWEST_TRIED = 32  # rollouts or groups that are tried at any cost
MOST_DENOMINATOR_BITS = 2048  # of the common denominator of sums


def joint_values(
    graph: Graph,
    nodes: tuple[Node, ...],
    points: Mapping[Node, Odds],
    given: Mapping[str, Fraction],
    allowance: Allowance | None,
    items: int,
) -> tuple[Joint, bool]:
    """The joint values of nodes of one rollout, with their probabilities, and whether these are all.

    items: of a list at most. Spends at most two thirds of the rest of the allowance. If that is too little, a few
    values are drawn at random.
    """
    allowance = allowance or Allowance()
    if len(nodes) == 1 and not nodes[0].level.listed:
        terms = independent_terms(graph, nodes[0])
        if len(terms) > 1:  # a sum of independent terms: only the sum matters
            return _sums(graph, terms, points, given, allowance, items)
    blocks = blocks_of(graph, walk(nodes), points, items)
    columns = [n for block in blocks for n in block.nodes]
    choices = [_choices(block) for block in blocks]
    complete = prod(block.count for block in blocks) <= MOST_COLUMN_STATES
    rows, _ = combinations(choices, MOST_COLUMN_STATES if complete else MOST_JOINT_STATES)
    evaluators = [GroupEvaluator(node, columns, given) for node in nodes]
    found: Joint = {}
    own = allowance.part()
    for tried, (row, mass) in enumerate(rows):
        if own.is_spent and tried >= FEWEST_TRIED:
            found = {}
            for row, mass in _drawn(choices, max(FEWEST_TRIED, tried // 4)):
                _add_value(found, evaluators, row, mass)
            return found, False
        complete = _add_value(found, evaluators, row, mass) and complete
    return found, complete


def _choices(block: Block) -> list[tuple[tuple[Values, ...], float]]:
    """The joint values of a block with their probabilities; some of them, drawn at random, if there are too many."""
    if block.count <= MOST_COLUMN_STATES:
        return list(block.all())
    draw = random.Random(0)
    return [(joint, 1 / MOST_JOINT_STATES) for joint in block.drawn(draw, MOST_JOINT_STATES)]


def _add_value(
    found: Joint, evaluators: Sequence[GroupEvaluator], row: tuple[tuple[Values, ...], ...], mass: float
) -> bool:
    """Add the values of the nodes for the values of all blocks; False if one is too close to call."""
    columns = tuple(v for part in row for v in part)
    key = tuple(of_each(e.pool.known, e.values([columns], {})[0]) for e in evaluators)
    if any(is_unknown(v) for v in key):
        return False
    found[key] = found.get(key, 0.0) + mass
    return True


def _sums(
    graph: Graph,
    terms: list[Node],
    points: Mapping[Node, Odds],
    given: Mapping[str, Fraction],
    allowance: Allowance,
    items: int,
) -> tuple[Joint, bool]:
    """The values of a sum of independent terms, with probabilities. Of costly sums some values are drawn at random."""
    found = [joint_values(graph, (term,), points, given, allowance, items) for term in terms]
    choices: list[list[tuple[Any, float]]]  # of exact numbers, or of integers
    choices = [[(value, mass) for (value,), mass in values.items()] for values, _ in found]
    complete, own = all(all_cases for _, all_cases in found), allowance.part()
    scale = _common_denominator([value for values in choices for value, _ in values])
    if scale:  # integers are added much faster
        choices = [[(int(value * scale), mass) for value, mass in values] for values in choices]
    sums: dict[Any, float] = {0 if scale else Fraction(0): 1.0}
    most, cost = MOST_COLUMN_STATES, 0.4 if scale else 4.0  # cost: of one addition
    for at, values in enumerate(choices):
        fits = max(FEWEST_TRIED, int(own.left / (len(choices) - at) / (cost * max(1, len(values)))))
        if len(sums) > min(most, fits):
            kept = random.Random(0).sample(list(sums), min(MOST_JOINT_STATES, fits))
            sums, complete, most = {value: sums[value] for value in kept}, False, MOST_JOINT_STATES
        grown: dict[Any, float] = {}
        pool, before = Pool(), spent()
        for a, p in sums.items():
            for b, q in values:
                value = a + b if scale else pool.known(a + b)
                grown[value] = grown.get(value, 0.0) + p * q
                if not scale:
                    spend(4 * weight(value))
        if scale:
            spend(int(cost * len(sums) * len(values)))
        else:
            cost = max(cost, (spent() - before) / max(1, len(sums) * len(values)))
        sums = grown
    if len(sums) > MOST_COLUMN_STATES:
        kept = random.Random(0).sample(list(sums), MOST_JOINT_STATES)
        sums, complete = {value: sums[value] for value in kept}, False
    return {(Fraction(value, scale) if scale else value,): mass for value, mass in sums.items()}, complete


def _common_denominator(values: Sequence[Value]) -> int:
    """The common denominator of the values; 0 if some are not fractions or it is too large."""
    scale = 1
    for value in values:
        if not isinstance(value, Fraction):
            return 0
        scale = lcm(scale, value.denominator)
        if scale.bit_length() > MOST_DENOMINATOR_BITS:
            return 0
    return scale


def combinations(parts: Sequence[Sequence[tuple[T, float]]], most: int) -> tuple[Weighed[T], bool]:
    """Every combination of (value, probability) pairs, or `most` drawn at random; and whether these are all."""
    count = 1
    for pairs in parts:
        count *= len(pairs)
    if count <= most:
        return [(tuple(v for v, _ in row), prod(p for _, p in row)) for row in product(*parts)], True
    return _drawn(parts, most), False


def _drawn(parts: Sequence[Sequence[tuple[T, float]]], most: int) -> Weighed[T]:
    """`most` combinations of (value, probability) pairs, drawn by their probabilities."""
    draw = random.Random(0)
    columns = [list(zip(*pairs, strict=True)) for pairs in parts]
    rows = Counter(tuple(draw.choices(values, odds)[0] for values, odds in columns) for _ in range(most))
    return [(row, n / most) for row, n in rows.items()]
