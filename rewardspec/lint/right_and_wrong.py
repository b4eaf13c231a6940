"""Which rollouts of small groups are right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from rewardspec.groups.parts import columns_of
from rewardspec.groups.question import Group
from rewardspec.lint.facts import NO_OUTCOME, NOT_EXACT, Facts, once
from rewardspec.lint.items import flat, places

LONG = (4, 8, 16)  # items of a list
MOST_LONG = 30  # rollouts whose one item is repeated


def right_in(facts: Facts, group: Group) -> list[bool | None] | None:
    """For each rollout right or wrong, None if unknown; None if unknown for the whole group."""
    truth = facts.question.program.outcome
    assert truth is not None, "only called if there is an outcome"
    holds, fails = (facts.groups.values(node, group) for node in (truth.holds, truth.fails))
    if holds is None or fails is None:
        return None
    return [True if h == 1 else False if f == 1 else None for h, f in zip(holds, fails, strict=True)]


def groups_with_outcome(facts: Facts, code: str) -> Iterator[tuple[Group, list[Any]]]:
    """Small groups and their advantages, for a finding that needs an outcome.

    The advantages are those before the batch's normalisation, which scales and shifts all groups equally.
    """
    if facts.outcome is None:
        if len(columns_of([facts.question.root])) > 1:
            facts.not_checked(code, NO_OUTCOME)
        return
    if facts.depends_on_batch(code):
        return
    unknown = False
    for group, advantages in facts.groups.each():
        if advantages is None:
            unknown = True
        elif None not in flat(advantages):
            yield group, advantages
    if unknown:
        facts.not_checked(code, NOT_EXACT)
    elif facts.groups.few_of is not None:
        facts.not_checked(code, facts.groups.few_of)


@once
def group_with_wrong_above_right(facts: Facts) -> tuple[Group, list[Any]] | None:
    """A small group, and its advantages, in which a wrong answer outranks a right one: by each of its items."""
    known = False
    for group, advantages in groups_with_outcome(facts, "wrong-above-right"):
        known = True
        if _is_wrong_above_right(facts, group, advantages):
            return group, advantages
    if known:
        for group in _long_and_short(facts):
            found = facts.groups.advantages(group)
            if found is not None and None not in flat(found) and _is_wrong_above_right(facts, group, found):
                return group, found
    return None


def _is_wrong_above_right(facts: Facts, group: Group, advantages: list[Any]) -> bool:
    right = right_in(facts, group)
    if right is None:
        return False
    worst = [max(flat([a])) for a, r in zip(advantages, right, strict=True) if r is True and a != ()]
    best = [min(flat([a])) for a, r in zip(advantages, right, strict=True) if r is False and a != ()]
    return bool(worst and best and min(worst) < max(best))


def _long_and_short(facts: Facts) -> Iterator[Group]:
    """Groups of a wrong rollout with many equal items and a right one with one: sums over an ordered list grow."""
    nodes, kind = list(facts.question.fine), facts.question.kinds[0]
    for level in facts.question.lists:
        if not facts.declared.lists[level.name].ordered:
            continue
        at = next(i for i, n in enumerate(nodes) if n.op == "position" and n.level is level)
        ones = [row for row in facts.question.states()[0] if row[at] == places(1)]
        ones = ones[:: 1 + len(ones) // MOST_LONG]
        for count in LONG:
            long = [
                tuple(
                    v if n.level is not level else places(count) if n.op == "position" else v * count
                    for n, v in zip(nodes, row, strict=True)
                )
                for row in ones
            ]
            wrong = [row for row in long if right_in(facts, Group((row,), *kind)) == [False]]
            right = [row for row in ones if right_in(facts, Group((row,), *kind)) == [True]]
            yield from (Group(pair, *kind) for pair in product(wrong, right))
