"""How much a policy's groups have to learn from: dead groups, spread, and each component's share of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rewardspec.groups.parts import columns_of
from rewardspec.groups.points import Point, PolicyModel
from rewardspec.groups.states import Rollouts, evaluate_groups, find_states
from rewardspec.ir.exact import GroupEvaluator, Value
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

    groups_without_signal: fraction of dead groups, whose advantages are all equal. rollouts_without_signal: fraction of
    rollouts with advantage 0. exact: False if these two are upper bounds, because some values are too close to call.
    spread: mean over groups of max - min of the advantage. shares: each component's share of the advantage's variance;
    None if the advantage is not a sum over components. All are estimates if groups were drawn at random.
    """

    groups_without_signal: float
    rollouts_without_signal: float
    spread: float
    shares: dict[str, float] | None
    exact: bool = True


def liveness(found: Vectors, shares: dict[str, float] | None) -> Liveness:
    """The liveness of groups with these advantages."""
    values = np.array([approximate(v) for v in found.values if v is not None])
    assert len(values) == len(found.values), "a missing advantage raises"
    rows = values[found.rows]
    mass = found.mass / (found.mass.sum() + found.unsure)
    unsure = float(found.unsure / (found.mass.sum() + found.unsure))
    dead = (found.rows == found.rows[:, :1]).all(1)
    zero = [_is_zero(v) for v in found.values]
    spread = rows.max(1) - rows.min(1)
    none = float(mass @ np.array([z is not False for z in zero])[found.rows].mean(1))
    return Liveness(
        float(mass @ dead) + unsure, none + unsure, float(mass @ spread), shares, not unsure and None not in zero
    )


def _is_zero(value: Value) -> bool | None:
    """Whether a value is 0; None if too close to call."""
    try:
        return bool(value == 0)
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
        names = columns_of([node])
        inside = [(c.name, s) for c, s in zip(program.components, found, strict=True) if columns_of([s]) & names]
        if any(not columns_of([share]) <= names for _, share in inside):
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
    """The covariance of each node with the first, over the rollouts of all groups."""
    states = find_states(program, nodes, given, size, model, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given, True) for node in nodes]
    means, products, whole = np.zeros(len(nodes)), np.zeros(len(nodes)), 0.0
    floats: dict[tuple[Value, ...], tuple[Value, ...]] = {
        row: tuple(None if isinstance(v, Unknown | float | None) else approximate(v) for v in row)
        for row in states.rollouts
    }

    def ask(rollouts: Rollouts, group: dict[str, Point]) -> list[list[float]]:
        rows = [floats[row] for row in rollouts]
        return [[0.0 if v is None else v for v in e(rows, group)] for e in evaluators]

    groups, _ = evaluate_groups(states, ask, size, MOST_MEASURED_GROUPS, seed, allowance)
    for found, mass in groups:
        rows = np.array(found, dtype=float)
        means += mass * rows.mean(1)
        products += mass * (rows * rows[0]).mean(1)
        whole += mass
    return list(products / whole - means / whole * means[0] / whole)
