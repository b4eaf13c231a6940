"""Which rollouts of small groups are right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.groups.parts import columns_of
from rewardspec.groups.question import Group
from rewardspec.ir.exact import items_of
from rewardspec.lint.facts import NO_OUTCOME, NOT_EXACT, OF_LISTS, Facts, HasLists, once


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
        elif not any(v is None for value in advantages for v in items_of(value)):
            yield group, advantages
    if unknown:
        facts.not_checked(code, NOT_EXACT)
    elif facts.groups.few_of is not None:
        facts.not_checked(code, facts.groups.few_of)


@once
def group_with_wrong_above_right(facts: Facts) -> tuple[Group, list[Any]] | None:
    """A small group, and its advantages, in which a wrong answer outranks a right one."""
    if facts.program.advantage.level.listed:
        raise HasLists(OF_LISTS)  # an item of a wrong answer can be better than one of a right answer
    for group, advantages in groups_with_outcome(facts, "wrong-above-right"):
        right = right_in(facts, group)
        if right is None or True not in right or False not in right:
            continue
        worst = min(a for a, r in zip(advantages, right, strict=True) if r is True)
        best = max(a for a, r in zip(advantages, right, strict=True) if r is False)
        if worst < best:
            return group, advantages
    return None
