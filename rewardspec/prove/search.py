"""Local search for a group that breaks a guarantee, if domains are intervals and not all groups can be tried."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rewardspec.groups.points import Point
from rewardspec.groups.question import Group
from rewardspec.ops.domain import Domain
from rewardspec.prove.decide import BROKEN, Decider
from rewardspec.prove.screen import Screen

ROUNDS = 12
KEPT_GROUPS = 60  # groups that each round starts from
MOVES_OF_EACH = 8  # of each of them


@dataclass(frozen=True)
class Found:
    """A group that breaks the guarantee, None if none was found, and the number of groups tried."""

    group: Group | None
    tried: int


def search(
    decider: Decider, screen: Screen, name: str, nearest: Sequence[tuple[float, Group]], size: int, seed: int
) -> Found:
    """Search for a group that breaks a guarantee by moving the values of interval columns.

    nearest: (margin, group) to start from. Each round continues from the groups with the least margins.
    """
    draw = random.Random(seed + size)
    nodes, guarantee = list(decider.question.fine), decider.question.program.guarantees[name]
    moving = [i for i, n in enumerate(nodes) if n.domain.values is None and not n.domain.ids]
    pool, reach, tried = sorted(nearest, key=lambda pair: pair[0])[:KEPT_GROUPS], 0.5, 0
    for _ in range(ROUNDS if moving else 0):
        fresh = []
        for _, group in pool:
            for _ in range(MOVES_OF_EACH):
                moved = [list(rollout) for rollout in group.rollouts]
                for rollout in draw.sample(moved, draw.randint(1, min(3, size))):
                    at = draw.choice(moving)
                    rollout[at] = _moved(rollout[at], nodes[at].domain, reach, draw)
                fresh.append(group._replace(rollouts=tuple(map(tuple, moved))))
        tried += len(fresh)
        margins = screen.margins(name, fresh, size)
        if margins:
            best = min(range(len(margins)), key=margins.__getitem__)
            if margins[best] < 0 and decider.decide(guarantee, fresh[best]) == BROKEN:
                return Found(_plainer(decider, name, fresh[best]), tried)
        pool = sorted([*pool, *zip(margins, fresh, strict=True)], key=lambda pair: pair[0])[:KEPT_GROUPS]
        reach *= 0.7
    return Found(None, tried)


def _moved(value: Point, domain: Domain, reach: float, draw: random.Random) -> Fraction:
    """A random value of an interval near `value`."""
    x = 0.0 if value is None else float(value)
    span = float(domain.hi - domain.lo) if domain.bounded else max(1.0, 2 * abs(x))
    x += draw.gauss(0, reach * span) if draw.random() < 0.9 else draw.uniform(-span, span)
    return Fraction(min(max(x, float(domain.lo)), float(domain.hi))).limit_denominator(10**6)


def _plainer(decider: Decider, name: str, group: Group) -> Group:
    """The group rounded to as few digits as still break the guarantee."""
    nodes, guarantee = list(decider.question.fine), decider.question.program.guarantees[name]
    for digits in (0, 1, 2, 3):
        rollouts = tuple(
            tuple(
                v if v is None or n.domain.values is not None or n.domain.ids else Fraction(round(v, digits))
                for n, v in zip(nodes, rollout, strict=True)
            )
            for rollout in group.rollouts
        )
        rounded = group._replace(rollouts=rollouts)
        inside = all(v is None or v in n.domain for r in rollouts for n, v in zip(nodes, r, strict=True))
        if inside and decider.decide(guarantee, rounded) == BROKEN:
            return rounded
    return group
