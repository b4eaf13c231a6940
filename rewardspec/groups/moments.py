"""Moments of training: where what depends on `step`, `progress` and `total_steps` is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rewardspec.groups.points import users_of
from rewardspec.ir.node import Node, walk
from rewardspec.ops.operators import COMPARISONS

SHARES_OF_RUN = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))
RUN = Fraction(1000)  # steps of the run that these are shares of

Moment = dict[str, Fraction]  # `step`, `total_steps` and `progress`, as far as a spec looks at them


def moments_of(nodes: Sequence[Node]) -> tuple[list[Moment], bool]:
    """Values of `step`, `progress` and `total_steps` to look at, and whether they stand for all."""
    order = walk(nodes)
    used = {
        n.attributes[0]: n for n in order if n.op == "given" and n.attributes[0] in ("step", "progress", "total_steps")
    }
    if not used:
        return [{}], True
    if set(used) == {"step"}:
        users = users_of(order)[used["step"]]
        others = [a.constant for u in users for a in u.args if a is not used["step"]]
        limits = [x for x in others if x is not None]
        if all(u.op in COMPARISONS for u in users) and len(limits) == len(others):
            marks = sorted({Fraction(0), *(x + d for x in limits for d in (-1, 0, 1) if x + d >= 0)})
            return [{"step": mark} for mark in marks], True  # steps between two marks are compared alike
        marks = sorted({Fraction(0), Fraction(1), RUN, *(x for x in limits if x >= 0)})
        return [{"step": mark} for mark in marks], False
    return [{"step": p * RUN, "total_steps": RUN, "progress": p} for p in SHARES_OF_RUN], False
