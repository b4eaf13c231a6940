"""Groups with values from all over their domains, drawn at random."""

from __future__ import annotations

import random
from fractions import Fraction
from math import ceil

from rewardspec.groups.moments import Moment
from rewardspec.groups.points import Point, points_of, users_of
from rewardspec.groups.question import Group, Rollout
from rewardspec.ir.node import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import places

PIECES = 997  # that an interval is divided into
LONGEST = 4  # items of a list
MOST_ITEMS = 20


def scattered(facts: Facts, size: int = 4, more_items: int = 0) -> list[Group]:
    """Groups with values from all over their domains: a claim that holds for all of them hardly holds by chance.

    more_items: how many more the longest lists have than it takes to exceed the numbers in the spec.
    """
    draw = random.Random(0)

    def value(node: Node, points: list[Point]) -> Point:
        lo, hi = node.domain.lo, node.domain.hi
        if node.domain.values is not None:
            return draw.choice(points)
        if isinstance(lo, float):
            lo = Fraction(-100)
        if isinstance(hi, float):
            hi = max(Fraction(lo), *(p for p in points if p is not None)) * 2 + 100
        return lo + (hi - lo) * Fraction(draw.randint(0, PIECES), PIECES)

    def rollout() -> Rollout:
        long = {level: draw.randint(0, longest) for level in question.lists}
        return tuple(
            value(node, points)
            if not node.level.listed
            else places(long[node.level])
            if node.op == "position"
            else tuple(value(node, points) for _ in range(long[node.level]))
            for node, points in question.fine.items()
        )

    question, longest = facts.question, _longest(facts) + more_items
    moments = _moments(facts)
    return [
        Group(
            tuple(rollout() for _ in range(size)),
            {name: draw.choice(points) for name, points in question.coarse.items()},
            moments[i % len(moments)],
        )
        for i in range(max(25, 5 * len(moments)))
    ]


def _longest(facts: Facts) -> int:
    """The most items of a list: more than any number that the spec may compare their count with."""
    constants = (n.constant for n in walk(facts.question.nodes)) if facts.question.lists else ()
    return max([LONGEST, *(ceil(c) + 1 for c in constants if c is not None and c < MOST_ITEMS)])


def _moments(facts: Facts) -> list[Moment]:
    """Moments of the run before, between and after all changes of schedules."""
    order = walk([facts.question.root])
    users = users_of(order)
    given = {n.attributes[0]: n for n in order if n.op == "given" and n.attributes[0] in ("step", "progress")}
    found = list(facts.question.moments)
    for name, node in given.items():
        for point in points_of(node.domain, node, users)[0]:
            if len(found[0]) == 1:
                found.append({"step": Fraction(round(point))})
            else:
                total = found[0]["total_steps"]
                progress = point if name == "progress" else min(point / total, Fraction(1))
                found.append({"step": progress * total, "total_steps": total, "progress": progress})
    return [moment for i, moment in enumerate(found) if moment not in found[:i]]


def every_group_and_some(facts: Facts, code: str) -> list[Group]:
    """All groups of two, those of three if they are few, and groups of `scattered`: for claims about all.

    Empty if groups of two are too many. The finding is then noted as not checked.
    """
    every = facts.groups.all or {}
    if 2 not in every:
        facts.not_checked(code, facts.groups.few_of or "there are too many kinds of rollouts")
        return []
    return [*scattered(facts), *(group for groups in every.values() for group in groups)]
