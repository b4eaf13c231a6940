"""Moments of training: the values of `step`, `progress` and `total_steps` at which a spec is checked."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rewardspec.groups.points import users_of
from rewardspec.ir.node import Node, walk
from rewardspec.ops.operators import COMPARISONS

SHARES_OF_RUN = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))
RUN = Fraction(1000)  # steps of that run

Moment = dict[str, Fraction]  # those of `step`, `total_steps` and `progress` that a spec reads


def moments_of(nodes: Sequence[Node]) -> tuple[list[Moment], bool]:
    """The moments to try, and whether they represent the whole run.

    `0.5 if step < 100 else 0` is tried at steps 0, 99, 100 and 101, which represent all. `step / 10` is tried at
    steps 0, 1, 10 and 1000, which do not.
    """
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
            return [{"step": mark} for mark in marks], True  # steps between two marks compare equally
        marks = sorted({Fraction(0), Fraction(1), RUN, *(x for x in limits if x >= 0)})
        return [{"step": mark} for mark in marks], False
    return [{"step": p * RUN, "total_steps": RUN, "progress": p} for p in SHARES_OF_RUN], False
