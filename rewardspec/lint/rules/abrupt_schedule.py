"""A scale or weight that jumps at one step.

From one step to the next the same rollout has a different reward and a different advantage. What the policy learnt
before the jump then has another value.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1], weight: 1 if step < 30 else 0.5}
advantage: grpo
```

Write a ramp: `weight: "1 - 0.5 * ramp(step, start=20, end=60)"`.

ToolRL (arXiv:2504.13958), Sec. 5.2, compares such a switch with a ramp: the ramp wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil

from rewardspec.groups.points import points_of, users_of
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, is_elementwise, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.rollouts import TIMES
from rewardspec.lint.scale import scale_ends
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.ops.exact import Inexact
from rewardspec.syntax.tree import Expr
from rewardspec.text.diagnostics import Diagnostic, Report

GRID = 200  # parts of a run that are searched for jumps
SHORTEST = Fraction(1, 1000)  # of a step
FEW_STEPS = 20  # in a shorter run ramps jump, too


@finding("abrupt-schedule", __doc__)
def abrupt_schedule(facts: Facts) -> Iterator[Diagnostic]:
    lowering = Lowering(facts.declared, Report())
    for name, declaration in facts.declared.components.items():
        for key, exprs in (
            ("weight", [declaration.weight]),
            ("scale", scale_ends(declaration.value)),
        ):
            if declaration.says(key) and any(expr is not None and _jumps(facts, lowering, expr) for expr in exprs):
                yield facts.warn(
                    "abrupt-schedule",
                    f"the {key} of `{name}` jumps at one step",
                    facts.component_place(name, key),
                    help="use a ramp: `ramp(step, start=20, end=60)` goes from 0 to 1",
                )


def _jumps(facts: Facts, lowering: Lowering, expr: Expr) -> bool:
    """Whether one step makes a tenth or more of the whole change of a schedule."""
    try:
        whole = lowering.number(expr, lowering.user)
    except Skip:
        return False
    order, users = walk([whole]), users_of(walk([whole]))
    timed = _timed(order)
    marks = {p for n in timed if n.attributes == ("step",) for p in points_of(n.domain, n, users)[0]}
    last = Fraction(facts.run.total_steps or max(1000, 2 * ceil(max(marks, default=0))))
    steps = {*(p + d for p in marks for d in (-1, 0, 1)), *(last * i / GRID for i in range(GRID + 1))}
    steps = {step for step in steps if 0 <= step <= last - 1}
    schedules = [node for node in timed if not any(user in timed for user in users.get(node, []))]
    return last >= FEW_STEPS and any(_has_jump(node, sorted(steps), last) for node in schedules)


def _timed(order: Sequence[Node]) -> set[Node]:
    """The nodes that depend on the time of training and on nothing else."""
    timed: set[Node] = set()
    for n in order:
        known = all(a in timed or a.op == "const" for a in n.args)
        if (n.op == "given" and n.attributes[0] in TIMES) or (n.args and known and is_elementwise(n)):
            timed.add(n)
    return timed


def _has_jump(node: Node, steps: Sequence[Fraction], last: Fraction) -> bool:
    """Whether a tenth or more of a schedule's whole change is between two times less than `SHORTEST` apart."""

    def at(step: Fraction) -> Fraction | None:
        moment = {"step": step, "total_steps": last, "progress": step / last}
        try:
            value: Fraction | None = GroupEvaluator(node, [], moment)([()], {})[0]
        except Inexact:
            return None
        return value

    values = [(step, value) for step in steps if (value := at(step)) is not None]
    if len(values) < len(steps):
        return False
    span = max(value for _, value in values) - min(value for _, value in values)
    for (low, below), (high, above) in pairwise(values):
        while high - low > SHORTEST and span and abs(above - below) * 10 >= span:
            middle = (low + high) / 2
            value = at(middle)
            if value is None:
                break
            if abs(value - below) > abs(above - value):
                high, above = middle, value
            else:
                low, below = middle, value
        if span and abs(above - below) * 10 >= span and high - low <= SHORTEST:
            return True
    return False
