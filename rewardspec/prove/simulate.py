"""How much signal survives a spec: distinct advantage groups, and what a policy would be left with.

An advantage group is the vector of advantages of one group of rollouts, their order ignored (GDPO,
arXiv:2601.05242, Sec. 2 and Fig. 2-3). The step over the batch is left out, as in the paper: for any
one batch it is an increasing affine map, which changes no count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np

from rewardspec.groups.batch import without_batch
from rewardspec.groups.joint import FEW, joint_values
from rewardspec.groups.parts import columns_of, connected, independent_terms
from rewardspec.groups.points import EVENLY, PolicyModel, column_points
from rewardspec.groups.rates import policy
from rewardspec.groups.states import States, find_states, of_rollout
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import Node, walk
from rewardspec.ir.shares import find_shares
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import MOST_EFFORT, Allowance
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.ops.real import UNKNOWN, Pool, TooClose, approximate
from rewardspec.prove.growth import TooMany, Vectors, add, vectors
from rewardspec.spec import Spec

MOST_GROUPS = 60_000  # groups of one part that are tried; beyond them as many are drawn
MOST_REALS = 20_000  # rollouts in them, where values are no sums of roots and take longer
NOT_ROOTS = ("sigmoid", "tanh", "exp", "log", "cos", "sqrt", "**")
MOST_SETS = 12  # of reward vectors that kinds of groups have, whose overlaps are counted

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Simulation:
    """What becomes of every group that a spec's domains allow.

    reward_groups: distinct groups of shaped rewards. advantage_groups: distinct groups of advantages; how many of the
    reward groups a policy gradient can tell apart. exact: whether these are the numbers, or lower bounds. signal: what
    groups are left with under the policy's rates; None where that is not known. interrupted: whether a
    KeyboardInterrupt ended the count.
    """

    spec: str
    group_size: int
    reward_groups: int
    advantage_groups: int
    exact: bool
    signal: Liveness | None = None
    interrupted: bool = False

    def __repr__(self) -> str:
        least = "" if self.exact else ">= "
        return (
            f"<Simulation of {self.spec!r}, groups of {self.group_size}: "
            f"{least}{self.reward_groups} reward groups, {least}{self.advantage_groups} advantage groups>"
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Liveness:
    """How much a policy's groups have to learn from, before the batch's normalisation.

    groups_without_signal: share of dead groups, whose advantages are all alike. rollouts_without_signal: share of
    rollouts with advantage 0. exact: whether these are the shares, or, where values are too close to call, upper
    bounds. spread: mean over groups of the advantage's max - min. shares: each component's share of the advantage's
    variance; None where the advantage is no sum of shares. All are estimates where groups were drawn.
    """

    groups_without_signal: float
    rollouts_without_signal: float
    spread: float
    shares: dict[str, float] | None
    exact: bool = True


def simulate(
    spec: Spec,
    group_size: int,
    *,
    rates: Mapping[str, Fraction | float] | None = None,
    step: int = 0,
    total_steps: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulation:
    """Distinct reward and advantage groups of a spec, and how live a policy's groups are.

    simulate(rewardspec.load("specs/gdpo/math.yaml"), 4, rates={"correct": 0.3}).signal.groups_without_signal

    rates: how often columns, or components that one column decides, succeed; whatever is not named has each of its
    values equally often. step, total_steps: when schedules are looked at. seed, progress: as `count_groups` takes them.
    Raises ValueError for a rate that cannot be given.
    """
    model = policy(spec.program, rates or {})
    moment = {
        "step": Fraction(step),
        "total_steps": Fraction(total_steps),
        "progress": min(Fraction(step, total_steps), Fraction(1)),
    }
    return count_groups(spec.program, spec.name, group_size, moment, seed, model, progress)


def count_groups(
    program: Program,
    name: str,
    group_size: int,
    given: Mapping[str, Fraction] | None = None,
    seed: int = 0,
    model: PolicyModel = EVENLY,
    progress: Progress | None = None,
) -> Simulation:
    """Distinct reward and advantage groups over every group that the declared domains allow.

    given: `step`, `total_steps` and `progress` (all 0 if not said). model: probabilities of the values of
    columns, for `signal`; a column that is not mentioned has each of its values equally often. progress:
    called with the number of advantage groups known so far. An interrupt leaves what is known.
    """
    given = {name: Fraction(0) for name in ("step", "total_steps", "progress")} | dict(given or {})
    root, exact = without_batch(program.graph, program.advantage)
    rewards, all_rewards = _reward_groups(program, group_size, given, Allowance())
    allowance = Allowance()
    known = 1

    def watch(count: int) -> None:
        nonlocal known
        known = max(known, count)
        if progress is not None:
            progress(known)

    try:
        whole: Vectors | None = None
        nodes = independent_terms(program.graph, root)
        for node in nodes:
            found, all_cases = part_vectors(program, node, group_size, given, seed, model, allowance)
            exact = exact and all_cases
            whole = found if whole is None else add(whole, found, watch, allowance)
            watch(len(whole))
    except (TooMany, TooClose, KeyboardInterrupt) as stop:  # every part has a vector of equal values, so sets only grow
        return Simulation(name, group_size, rewards, known, False, interrupted=isinstance(stop, KeyboardInterrupt))
    try:
        shares, interrupted = (
            _variance_shares(program, root, nodes, group_size, given, seed, model, Allowance(MOST_EFFORT // 4)),
            False,
        )
    except KeyboardInterrupt:
        shares, interrupted = None, True
    signal = None if None in whole.values else _signal(whole, shares)  # a group without a value would end the run
    exact = exact and all_rewards and not whole.unsure
    return Simulation(name, group_size, rewards, len(whole), exact, signal, interrupted)


def part_vectors(
    program: Program,
    node: Node,
    size: int,
    given: Mapping[str, Fraction],
    seed: int = 0,
    model: PolicyModel = EVENLY,
    allowance: Allowance | None = None,
) -> tuple[Vectors, bool]:
    """The vectors that a part of the advantage can have, up to order, and whether these are exactly all.

    Raises TooClose where no group has values that can be told apart.
    """
    allowance = allowance or Allowance()
    states = find_states(program, [node], given, model=model, allowance=allowance)
    evaluate = GroupEvaluator(node, states.start, given)
    most = MOST_REALS // size if any(n.op in NOT_ROOTS for n in walk([node])) else MOST_GROUPS
    groups, is_all = _tried(states, evaluate, size, most, seed, allowance)
    found = vectors(groups)
    return found, states.complete and not found.unsure and is_all


def _tried(
    states: States, ask: Callable[[tuple, dict], list], size: int, most: int, seed: int, allowance: Allowance
) -> tuple[list[tuple[list, float]], bool]:
    """What is asked of groups, with their probabilities, and whether these are all groups.

    Where the allowance does not last for all, a part of as many is drawn.
    """
    found: list = []
    own = allowance.part()
    for members, group, mass in states.each_group(size, most, seed):
        if own.is_spent and len(found) >= FEW:
            if states.count(size) > most:  # they were drawn
                return [(value, mass * most / len(found)) for value, mass in found], False
            few = states.each_group(size, max(FEW // 2, len(found) // 4), seed)
            return [(ask(members, group), mass) for members, group, mass in few], False
        found.append((ask(members, group), mass))
    return found, states.count(size) <= most


# Reward groups -----------------------------------------------------------------------------------


def _reward_groups(
    program: Program, size: int, given: Mapping[str, Fraction], allowance: Allowance
) -> tuple[int, bool]:
    """Distinct multisets of shaped reward vectors, and whether that is exactly their number."""
    shaped = [component.shaped for component in program.components]
    nodes = walk(shaped)
    own = of_rollout(nodes)
    if any(n not in own and (n.op in REDUCTIONS or n.op in ("given", "copies")) for n in nodes):
        try:
            return _of_groups(program, shaped, size, given, allowance)
        except TooClose:
            return 1, False
    if any(_is_coarse_column(n) for n in nodes):
        try:
            return _of_kinds(program, shaped, size, given, allowance)
        except TooClose:
            return 1, False
    points, _, complete = column_points(program, shaped)
    count = 1
    for members in connected(shaped):
        found, all_cases = joint_values(program.graph, members, points, given, allowance)
        pools = [Pool() for _ in members]
        apart = [all(p.canonical(v) is not UNKNOWN for p, v in zip(pools, key, strict=True)) for key in found]
        count, complete = count * max(1, sum(apart)), complete and all_cases and all(apart)
    return comb(count + size - 1, size), complete


def _is_coarse_column(node: Node) -> bool:
    return node.op == "column" and node.level < Level.ROLLOUT


def _of_groups(program: Program, shaped: list[Node], size: int, given, allowance: Allowance) -> tuple[int, bool]:
    """Where a component looks at its group: what every group has, one group after another."""
    states = find_states(program, shaped, given, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given) for node in shaped]
    most = MOST_REALS // size if any(n.op in NOT_ROOTS for n in walk(shaped)) else MOST_GROUPS
    groups, is_all = _tried(states, lambda m, group: [e(m, group) for e in evaluators], size, most, 0, allowance)
    found, complete = set(), states.complete and is_all
    for columns, _ in groups:
        if any(v is UNKNOWN for column in columns for v in column):
            complete = False
        else:
            found.add(frozenset(Counter(zip(*columns, strict=True)).items()))
    return max(1, len(found)), complete


def _of_kinds(program: Program, shaped: list[Node], size: int, given, allowance: Allowance) -> tuple[int, bool]:
    """Where columns of group level make groups of several kinds: what each kind can have, counted once."""
    states = find_states(program, shaped, given, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given) for node in shaped]
    kinds = {
        frozenset(tuple(e([rollout], group)[0] for e in evaluators) for rollout in states.rollouts)
        for group, _ in states.groups
    }
    kinds = [kind for kind in kinds if not any(kind < other for other in kinds)]
    if len(kinds) > MOST_SETS:
        return max(comb(len(kind) + size - 1, size) for kind in kinds), False
    total = 0
    for n in range(1, len(kinds) + 1):
        for several in combinations(kinds, n):
            common = len(frozenset.intersection(*several))
            total += (-1) ** (n + 1) * (comb(common + size - 1, size) if common else 0)
    return total, states.complete


# Signal ------------------------------------------------------------------------------------------


def _signal(found: Vectors, shares: dict[str, float] | None) -> Liveness:
    values = np.array([approximate(v) for v in found.values])
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


def _is_zero(value) -> bool | None:
    """None where it is too close to call."""
    try:
        return value == 0
    except TooClose:
        return None


def _variance_shares(
    program: Program,
    root: Node,
    nodes: list[Node],
    size: int,
    given,
    seed: int,
    model: PolicyModel,
    allowance: Allowance,
) -> dict[str, float] | None:
    """Each component's share of the advantage's variance: its covariance with the part that it stands in.

    Parts are independent of each other, so nothing else co-varies with it.
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
        moments = _moments(program, [node, *(share for _, share in inside)], size, given, seed, model, allowance)
        total += moments[0]
        for (name, _), value in zip(inside, moments[1:], strict=True):
            own[name] += value
    return {name: float(value / total) for name, value in own.items()} if total > 0 else None


def _moments(
    program: Program, nodes: list[Node], size: int, given, seed: int, model: PolicyModel, allowance: Allowance
) -> list[float]:
    """The covariance of each node with the first, over rollouts of all groups."""
    states = find_states(program, nodes, given, model, allowance=allowance)
    evaluators = [GroupEvaluator(node, states.start, given, True) for node in nodes]
    means, products, whole = np.zeros(len(nodes)), np.zeros(len(nodes)), 0.0
    floats = {row: tuple(None if v is None else approximate(v) for v in row) for row in states.rollouts}

    def ask(members: tuple, group: dict) -> list:
        members = [floats[row] for row in members]
        return [[0.0 if v is None else v for v in e(members, group)] for e in evaluators]

    groups, _ = _tried(states, ask, size, MOST_GROUPS // 30, seed, allowance)
    for found, mass in groups:
        rows = np.array(found, dtype=float)
        means += mass * rows.mean(1)
        products += mass * (rows * rows[0]).mean(1)
        whole += mass
    return list(products / whole - means / whole * means[0] / whole)
