"""How much a policy's groups have to learn from: dead groups, spread, and each component's share of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np

from rewardspec.groups.parts import sources_of
from rewardspec.groups.points import Point, PolicyModel
from rewardspec.groups.states import Rollouts, evaluate_groups, find_states
from rewardspec.ir.exact import GroupEvaluator, Value, items_of, of_each
from rewardspec.ir.node import Node
from rewardspec.ir.shares import find_shares
from rewardspec.lower.program import Program
from rewardspec.ops.effort import Allowance
from rewardspec.ops.real import TooClose, Unknown, approximate
from rewardspec.prove.growth import Vectors

Given = Mapping[str, Fraction]  # `step`, `total_steps` and `progress`

MOST_MEASURED_GROUPS = 2000  # of one part, for covariances in floats


@dataclass(frozen=True)
class Liveness:
    """How much a policy's groups have to learn from, before the batch's normalisation.

    Of an advantage with a value for each item of a list, a group has those of all its rollouts.

    groups_without_signal: fraction of dead groups, whose advantages are all equal. rollouts_without_signal: fraction of
    rollouts with advantage 0, for all items. exact: False if these two are upper bounds, because some values are too
    close to call. spread: mean over groups of max - min of the advantage. shares: each component's share of the
    advantage's variance; None if the advantage is not a sum over components. All are estimates if groups were drawn at
    random.
    """

    groups_without_signal: float
    rollouts_without_signal: float
    spread: float
    shares: dict[str, float] | None
    exact: bool = True


def liveness(found: Vectors, shares: dict[str, float] | None) -> Liveness:
    """The liveness of groups with these advantages."""
    items = [items_of(value) for value in found.values]
    assert not any(v is None for values in items for v in values), "a missing advantage raises"
    ends = [[approximate(v) for v in values if not isinstance(v, Unknown | float | None)] for values in items]
    low = np.array([min(values, default=inf) for values in ends])[found.rows].min(1)
    high = np.array([max(values, default=-inf) for values in ends])[found.rows].max(1)
    mass = found.mass / (found.mass.sum() + found.unsure)
    unsure = float(found.unsure / (found.mass.sum() + found.unsure))
    dead = (found.rows == found.rows[:, :1]).all(1)
    if any(isinstance(value, tuple) for value in found.values):
        number: dict[Value, int] = {}
        least, most = np.array([_ends_of([number.setdefault(v, len(number)) for v in values]) for values in items]).T
        dead = least[found.rows].min(1) >= most[found.rows].max(1)
    zero = [_is_zero(value) for value in items]
    spread = np.where(high > low, high - low, 0.0)
    none = float(mass @ np.array([z is not False for z in zero])[found.rows].mean(1))
    return Liveness(
        float(mass @ dead) + unsure, none + unsure, float(mass @ spread), shares, not unsure and None not in zero
    )


def _ends_of(numbers: list[int]) -> tuple[float, float]:
    """The least and the greatest; of none those that change no others."""
    return min(numbers, default=inf), max(numbers, default=-inf)


def _is_zero(items: Sequence[Value]) -> bool | None:
    """Whether a value is 0, or those of all items; None if too close to call."""
    try:
        return all(v == 0 for v in items)
    except TooClose:
        return None


def variance_shares(
    program: Program,
    root: Node,
    nodes: list[Node],
    size: int,
    given: Given,
    seed: int,
    model: PolicyModel,
    allowance: Allowance,
) -> dict[str, float] | None:
    """Each component's share of the advantage's variance: its covariance with its part of the advantage.

    Parts are independent, so the covariance with other parts is 0.
    """
    found = find_shares(program.graph, root, len(program.components))
    if found is None:
        return None
    total, own = 0.0, dict.fromkeys((c.name for c in program.components), 0.0)
    for node in nodes:
        names = sources_of([node])
        inside = [(c.name, s) for c, s in zip(program.components, found, strict=True) if sources_of([s]) & names]
        if any(not sources_of([share]) <= names for _, share in inside):
            return None
        covariances = _covariances(
            program, [node, *(share for _, share in inside)], size, given, seed, model, allowance
        )
        total += covariances[0]
        for (name, _), value in zip(inside, covariances[1:], strict=True):
            own[name] += value
    return {name: float(value / total) for name, value in own.items()} if total > 0 else None


def _covariances(
    program: Program,
    nodes: list[Node],
    size: int,
    given: Given,
    seed: int,
    model: PolicyModel,
    allowance: Allowance,
) -> list[float]:
    """The covariance of each node with the first, over the rollouts of all groups, or over their items."""
    states = find_states(program, nodes, given, size, model, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given, True) for node in nodes]
    means, products, whole = np.zeros(len(nodes)), np.zeros(len(nodes)), 0.0
    floats = {row: tuple(of_each(_near, v) for v in row) for row in states.rollouts}

    def ask(rollouts: Rollouts, group: dict[str, Point]) -> list[list[float]]:
        rows = [floats[row] for row in rollouts]
        values = [e(rows, group) for e in evaluators]
        counts = [next((len(v) for v in of_one if isinstance(v, tuple)), 1) for of_one in zip(*values, strict=True)]
        spread = [[v if isinstance(v, tuple) else (v,) * n for v, n in zip(own, counts, strict=True)] for own in values]
        return [[0.0 if v is None else v for items in own for v in items] for own in spread]

    groups, _ = evaluate_groups(states, ask, size, MOST_MEASURED_GROUPS, seed, allowance)
    for found, mass in groups:
        rows = np.array(found, dtype=float)
        means += mass * rows.sum(1)
        products += mass * (rows * rows[0]).sum(1)
        whole += mass * rows.shape[1]
    return list(products / whole - means / whole * means[0] / whole) if whole else [0.0] * len(nodes)


def _near(value: Value) -> float | None:
    return None if isinstance(value, Unknown | float | None) else approximate(value)
