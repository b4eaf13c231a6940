"""A rollout with only the easy reward can outrank one with only the hard reward.

The hard reward is the outcome, or the reward with the larger weight. The easy reward is not gated on it. In some group
a rollout with only the easy reward gets the larger advantage.

A weight does not prevent this if each reward is normalised separately. If nearly all rollouts of a group have a
reward, or nearly none has it, its deviation is small, and the z-score divides by the deviation. Groups of up to 16
are tried; of a reward of items, rollouts with one item.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1], weight: 0.5}          # one of 16 has it, 7 are right: 1.02 against 0.97
advantage: decoupled
```

Gate the easy reward (`when: correct >= 1`), or sum before normalising (`grpo`), which keeps the order of the
weighted sum.

GDPO (arXiv:2601.05242), Sec. 4.2.1: a lower weight of the easy reward does not demote it; a gate does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from rewardspec.groups.question import Group, Kind, Rollout
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import NOT_EXACT, Facts
from rewardspec.lint.gates import gate_names
from rewardspec.lint.items import flat, places, shown_name, side_by_side
from rewardspec.lint.registry import finding
from rewardspec.lint.right_and_wrong import group_with_wrong_above_right
from rewardspec.lint.table import table
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.numbers import format_number

Kinds = dict[tuple[bool, bool], Rollout]  # (has all of `hard`, has all of `easy`): a rollout

GROUPS_OF = (2, 4, 8, 16)
MOST_STATES = 512  # of a rollout; with more, only the states that differ in two rewards are tried
MOST_WORK = 1_000_000  # node values, over all groups that are tried


@finding("easy-above-hard", __doc__)
def easy_above_hard(facts: Facts) -> Iterator[Diagnostic]:
    worths = _worths(facts)
    pairs = list(_pairs(facts, worths))
    if not pairs or facts.depends_on_batch("easy-above-hard") or group_with_wrong_above_right(facts) is not None:
        return
    pairs.sort(key=lambda pair: abs(worths[pair[0]] - worths[pair[1]]))  # rewards of nearly equal worth first
    nodes, left = len(walk([facts.question.root])), MOST_WORK
    states = _states(facts)
    for at, (hard, easy) in enumerate(pairs):
        kinds = _kinds(facts, hard, easy, states)
        left -= nodes * len(states or ()) // len(pairs)
        if left < 0:
            facts.not_checked("easy-above-hard", f"{at} of {len(pairs)} pairs of rewards were tried")
            return
        if kinds is None:
            continue
        left -= nodes * sum(len(members) for members in _groups(kinds))
        found = _overtaken(facts, hard, easy, kinds)
        if found is None:
            continue
        group, advantages = found
        yield facts.warn(
            "easy-above-hard",
            f"a rollout with only `{easy}` can outrank one with only `{hard}`: {table(facts, group, advantages)}",
            facts.component_place(easy),
            labels=(Label(facts.component_place(hard), "alone, ranks lower"),),
            note="alone, ranks higher",
            help=_help(facts, worths, hard, easy),
        )
        return


def _help(facts: Facts, worths: dict[str, Fraction], hard: str, easy: str) -> str:
    """Gate the easy reward, if there is an outcome; sum first, if the weights then decide."""
    undone = "sum before normalising: normalising each reward undoes its weight"
    if facts.outcome is None and facts.graded_outcome is None:
        return undone
    top = f"{hard} >= {format_number(facts.shaped[hard].domain.hi)}"
    gate = (
        f"`and {top}` to its `when`"
        if facts.declared.components[easy].when is not None
        else f"`when: {top}` to `{easy}`"
    )
    return f"add {gate}" + ("" if worths[hard] < worths[easy] else f", or {undone}")


def _pairs(facts: Facts, worths: dict[str, Fraction]) -> Iterator[tuple[str, str]]:
    """(hard, easy): the outcome and each reward that is not gated on it.

    Without an outcome: two rewards on the same scale, the one with the larger weight first, if the spec writes a
    weight. Rewards of equal worth have no order and are omitted.
    """
    outcome = facts.outcome.component if facts.outcome is not None else facts.graded_outcome
    names = [c.name for c in facts.program.components if c.weight.domain.lo > 0 and _has_ends(c.shaped)]
    if facts.outcome is not None and outcome is None:
        return
    for hard in [outcome] if outcome in names else [] if outcome else names:
        for easy in names:
            if easy == hard or _depends(facts, easy, hard) or _depends(facts, hard, easy):
                continue
            if hard not in worths or easy not in worths:
                continue
            first, second = worths[hard], worths[easy]
            if (outcome and first != second) or (first > second and _are_weighed(facts, hard, easy)):
                yield hard, easy


def _are_weighed(facts: Facts, hard: str, easy: str) -> bool:
    """Whether two rewards are on the same scale, and the spec writes a weight for one of them."""
    spans = {facts.shaped[n].domain.hi - facts.shaped[n].domain.lo for n in (hard, easy)}
    return len(spans) == 1 and any(facts.declared.components[n].says("weight") for n in (hard, easy))


def _has_ends(node: Node) -> bool:
    return node.domain.bounded and node.domain.lo < node.domain.hi and not node.domain.nominal


def _depends(facts: Facts, name: str, other: str) -> bool:
    """Whether two components read a common column, or the gate of the first reads the second."""
    reads = [{n.attributes[0] for n in walk([facts.shaped[c]]) if n.op == "column"} for c in (name, other)]
    return bool(reads[0] & reads[1]) or other in gate_names(facts.declared, name)


def _worths(facts: Facts) -> dict[str, Fraction]:
    """The range of each component times its weight; without those whose weight changes or that have no ends."""
    found = {}
    for component in facts.program.components:
        weight, lo, hi = component.weight.constant, component.shaped.domain.lo, component.shaped.domain.hi
        if weight is not None and not isinstance(lo, float) and not isinstance(hi, float):
            found[component.name] = weight * (hi - lo)
    return found


def _states(facts: Facts) -> dict[Rollout, dict[str, Any]] | None:
    """Every state of a rollout, with the values of its components; None if there are too many."""
    states, complete = facts.question.states()
    if not complete or len(states) > MOST_STATES:
        return None
    return {state: worth for state in states if (worth := _worth_in(facts, state, facts.shaped)) is not None}


def _worth_in(facts: Facts, state: Rollout, names: Iterable[str]) -> dict[str, Any] | None:
    alone = Group((state,), *_setting(facts))
    found = {}
    for name in names:
        values = facts.groups.shaped(name, alone)
        if values is None or (facts.shaped[name].level.listed and len(values[0]) != 1):
            return None  # of a list the rollouts with one item are tried
        found[name] = flat(values)[0]
    return found


def _setting(facts: Facts) -> Kind:
    """The group columns and the moment that are tried."""
    return Kind({name: points[0] for name, points in facts.question.coarse.items()}, facts.question.moments[0])


def _kinds(facts: Facts, hard: str, easy: str, states: dict[Rollout, dict[str, Any]] | None) -> Kinds | None:
    """Rollouts that are equal in all other rewards; None if no two of them have only `hard` and only `easy`."""
    if states is None:
        states = _states_of_two(facts, hard, easy)
    ends = {name: (facts.shaped[name].domain.lo, facts.shaped[name].domain.hi) for name in (hard, easy)}
    by_rest: dict[tuple[Any, ...], Kinds] = {}
    for state, worth in states.items():
        if all(worth[name] in ends[name] for name in (hard, easy)):
            rest = tuple(value for name, value in worth.items() if name not in (hard, easy))
            by_rest.setdefault(rest, {})[worth[hard] == ends[hard][1], worth[easy] == ends[easy][1]] = state
    return next((k for k in by_rest.values() if (True, False) in k and (False, True) in k), None)


def _states_of_two(facts: Facts, hard: str, easy: str) -> dict[Rollout, dict[str, Any]]:
    """Rollouts that differ only in the columns of two rewards, with the values of all components that read these."""
    own = {n for n in walk([facts.shaped[name] for name in (hard, easy)]) if n.op == "column"}
    own_names = {n.attributes[0] for n in own}
    touched = [c for c in facts.shaped if c in (hard, easy) or own & set(walk([facts.shaped[c]]))]
    points: list[list[Any]] = []
    for node, values in facts.question.fine.items():
        few = values if shown_name(node) in own_names else values[:1]
        points.append([places(1)] if node.op == "position" else [(v,) for v in few] if node.level.listed else [*few])
    if prod(len(values) for values in points) > MOST_STATES // 4:
        return {}
    rows = product(*points)
    return {row: worth for row in rows if (worth := _worth_in(facts, row, touched)) is not None}


def _overtaken(facts: Facts, hard: str, easy: str, kinds: Kinds) -> tuple[Group, list[Any]] | None:
    """A group, and its advantages, in which a rollout with only `easy` is above one with only `hard`.

    All rollouts of the group are equal in all other rewards.
    """
    ends = {name: (facts.shaped[name].domain.lo, facts.shaped[name].domain.hi) for name in (hard, easy)}
    for members in _groups(kinds):
        group = Group(members, *_setting(facts))
        advantages = facts.groups.advantages(group)
        own, other = (facts.groups.shaped(name, group) for name in (hard, easy))
        if advantages is None or own is None or other is None or None in flat(advantages):
            facts.not_checked("easy-above-hard", NOT_EXACT)
            return None
        by_end = {
            (a == ends[hard][1], b == ends[easy][1]): x
            for a, b, x in side_by_side(own, other, advantages)
            if a in ends[hard] and b in ends[easy]
        }
        if (True, False) in by_end and (False, True) in by_end and by_end[False, True] > by_end[True, False]:
            return group, advantages
    return None


def _groups(kinds: Kinds) -> Iterator[tuple[Rollout, ...]]:
    """Groups in which one of the two rewards is as rare or as common as possible, the smallest first."""
    only_hard, only_easy = kinds[True, False], kinds[False, True]
    both, neither = kinds.get((True, True)), kinds.get((False, False))
    for size in GROUPS_OF:
        for n in range(1, size):
            rest = size - 1 - n
            if neither is not None:
                yield (only_hard,) * n + (only_easy,) + (neither,) * rest
            elif rest == 0:
                yield (only_hard,) * n + (only_easy,)
            if both is not None and rest > 0:
                yield (only_hard,) + (only_easy,) * n + (both,) * rest
