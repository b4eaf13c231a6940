"""How much of a spec's rewards survives in its advantages: distinct groups, and how live a policy's groups are.

An advantage group is the vector of advantages of one group, up to the order of its rollouts (GDPO, arXiv:2601.05242,
Sec. 2 and Fig. 2-3). Advantages are counted before the batch's normalisation, as in the paper: for any one batch it is
an increasing affine map, which changes no count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction

from rewardspec.groups.batch import without_batch
from rewardspec.groups.blocks import lists_of, of_items
from rewardspec.groups.parts import independent_terms
from rewardspec.groups.points import EVENLY, ITEMS, PolicyModel
from rewardspec.groups.rates import policy
from rewardspec.groups.states import evaluate_groups, find_states
from rewardspec.ir.exact import GroupEvaluator, items_of
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program
from rewardspec.ops.effort import MOST_EFFORT, Allowance
from rewardspec.ops.real import TooClose
from rewardspec.prove.growth import TooMany, Vectors, add, vectors
from rewardspec.prove.liveness import Liveness, liveness, variance_shares
from rewardspec.prove.reward_groups import count_reward_groups, most_groups
from rewardspec.spec import Spec

Progress = Callable[[int], None]  # advantage groups found so far


@dataclass(frozen=True)
class Simulation:
    """Counts over every group that a spec's domains allow.

    reward_groups: distinct groups of shaped rewards. advantage_groups: distinct groups of advantages, so as many reward
    groups as a policy gradient can distinguish. exact: False if these are lower bounds. signal: the liveness of groups
    under the policy's rates; None if unknown. interrupted: whether a KeyboardInterrupt ended the count. items: the most
    items of a list in the groups that were counted; None if the spec reads no list.
    """

    spec: str
    group_size: int
    reward_groups: int
    advantage_groups: int
    exact: bool
    signal: Liveness | None = None
    interrupted: bool = False
    items: int | None = None

    def __repr__(self) -> str:
        least = "" if self.exact else ">= "
        return (
            f"<Simulation of {self.spec!r}, groups of {self.group_size}: "
            f"{least}{self.reward_groups} reward groups, {least}{self.advantage_groups} advantage groups"
            f"{'' if self.items is None else f', {of_items(self.items)}'}>"
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def simulate(
    spec: Spec,
    group_size: int,
    *,
    rates: Mapping[str, Fraction | float] | None = None,
    step: int = 0,
    total_steps: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    items: int = ITEMS,
) -> Simulation:
    """The numbers of distinct reward and advantage groups of a spec, and how live a policy's groups are.

    simulate(rewardspec.load("specs/gdpo/math.yaml"), 4, rates={"correct": 0.3}).signal.groups_without_signal

    rates: success rates of columns, or of components that depend on one column; the values of other columns are equally
    likely. step, total_steps: the moment of training. seed, progress: as for `count_groups`. items: the most items of
    a list; all lengths up to that are equally likely.
    Raises ValueError for a name that cannot have a rate.
    """
    model = policy(spec.program, rates or {}, items)
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
    """The numbers of distinct reward and advantage groups over every group that the declared domains allow.

    given: `step`, `total_steps` and `progress`, 0 by default. model: probabilities of column values, for `signal`; the
    values of other columns are equally likely. progress: called with the number of advantage groups found so far.
    A KeyboardInterrupt ends the count and returns the numbers found so far.
    """
    given = {name: Fraction(0) for name in ("step", "total_steps", "progress")} | dict(given or {})
    root, exact = without_batch(program.graph, program.advantage)
    rewards, all_rewards = count_reward_groups(program, group_size, given, Allowance(), model)
    listed = lists_of(walk([root, *(component.shaped for component in program.components)]))
    items = model.items if listed else None
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
        assert whole is not None, "an advantage has a part"
    except (
        TooMany,
        TooClose,
        KeyboardInterrupt,
    ) as stop:  # each part has a vector of equal values: counts only grow
        cut = isinstance(stop, KeyboardInterrupt)
        return Simulation(name, group_size, rewards, known, False, interrupted=cut, items=items)
    shares, interrupted = None, False
    values = {v for value in whole.values for v in items_of(value)}
    varies = bool(whole.unsure) or len(values) > 1
    try:
        few = Allowance(MOST_EFFORT // 4)
        if varies:  # else the variance, in floats, is what rounding leaves
            shares = variance_shares(program, root, nodes, group_size, given, seed, model, few)
    except KeyboardInterrupt:
        interrupted = True
    signal = None if None in values else liveness(whole, shares)  # a missing advantage would raise
    exact = exact and all_rewards and not whole.unsure
    return Simulation(name, group_size, rewards, len(whole), exact, signal, interrupted, items)


def groups_without_signal(
    program: Program, size: int, given: Mapping[str, Fraction], model: PolicyModel, allowance: Allowance
) -> float | None:
    """As `signal` of `count_groups` has it, and nothing else; None where that is not known, or takes too much."""
    root, _ = without_batch(program.graph, program.advantage)
    try:
        parts = [
            part_vectors(program, n, size, given, 0, model, allowance)[0]
            for n in independent_terms(program.graph, root)
        ]
        whole = parts[0]
        for part in parts[1:]:
            whole = add(whole, part, lambda count: None, allowance)
    except (TooMany, TooClose):
        return None
    missing = any(v is None for value in whole.values for v in items_of(value))
    return None if missing or allowance.is_spent else liveness(whole, None).groups_without_signal


def part_vectors(
    program: Program,
    node: Node,
    size: int,
    given: Mapping[str, Fraction],
    seed: int = 0,
    model: PolicyModel = EVENLY,
    allowance: Allowance | None = None,
) -> tuple[Vectors, bool]:
    """The vectors of a part of the advantage over all groups, up to order, and whether these are all.

    Raises TooClose if every group has values too close to call.
    """
    allowance = allowance or Allowance()
    states = find_states(program, [node], given, size, model=model, allowance=allowance)
    evaluate = GroupEvaluator(node, states.start, given)
    groups, is_all = evaluate_groups(states, evaluate, size, most_groups([node], size), seed, allowance)
    found = vectors(groups)
    return found, states.complete and not found.unsure and is_all
