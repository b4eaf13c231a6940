"""Groups with values from all over their domains, drawn at random."""

from __future__ import annotations

import random
from fractions import Fraction

from rewardspec.groups.moments import Moment
from rewardspec.groups.points import Point, points_of, users_of
from rewardspec.groups.question import Group
from rewardspec.ir.node import Node, walk
from rewardspec.lint.facts import Facts

PIECES = 997  # that an interval is divided into


def scattered(facts: Facts, size: int = 4) -> list[Group]:
    """Groups with values from all over their domains: a claim that holds for all of them hardly holds by chance."""
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

    fine, question = facts.question.fine, facts.question
    moments = _moments(facts)
    return [
        Group(
            tuple(tuple(value(node, points) for node, points in fine.items()) for _ in range(size)),
            {name: draw.choice(points) for name, points in question.coarse.items()},
            moments[i % len(moments)],
        )
        for i in range(max(25, 5 * len(moments)))
    ]


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
