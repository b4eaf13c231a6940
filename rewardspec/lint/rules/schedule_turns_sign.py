"""A weight that changes its sign within the run.

A schedule that is to fade out goes on falling: from the step at which it crosses 0 a reward is a penalty, and what
was taught is untaught. How far `step` goes is told by `rewardspec check SPEC --total-steps 300`; without it nothing
is said of `step`. It follows from the formula of the weight.

```yaml
components:
  correct: {values: [0, 1]}
  explore: {range: [0, 1], weight: 1 - step / 100}         # --total-steps 300
advantage: gdpo
```

Hold it at 0: `weight: max(1 - step / 100, 0)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import NO_LENGTH, Facts
from rewardspec.lint.registry import finding
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import UNKNOWN
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic

GRID = 400  # moments of a run at which a weight is looked at


@finding("schedule-turns-sign", __doc__)
def schedule_turns_sign(facts: Facts) -> Iterator[Diagnostic]:
    total = facts.run.total_steps
    for component in facts.program.components:
        order = walk([component.weight])
        times = {n.attributes[0] for n in order if n.op == "given"}
        if not times & {"step", "progress"} or any(n.op in ("column", "copies", *REDUCTIONS) for n in order):
            continue
        if component.weight.domain.lo >= 0 or component.weight.domain.hi <= 0:
            continue
        if total is None and times != {"progress"}:
            facts.leave_out("schedule-turns-sign", NO_LENGTH)
            continue
        last = total or GRID
        moments = sorted({round(Fraction(i * (last - 1), GRID)) for i in range(GRID + 1)})
        signs = [(step, _sign_at(component.weight, step, last)) for step in moments]
        known = [(step, sign) for step, sign in signs if sign]
        turn = next((i for i in range(1, len(known)) if known[i][1] != known[0][1]), None)
        if turn is None:
            continue
        low, high = known[turn - 1][0], known[turn][0]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _sign_at(component.weight, middle, last) == known[turn][1] else (middle, high)
        when = f"from step {high} of {total}" if total is not None else f"from about {high / last:.0%} of the run"
        side = "below" if known[turn][1] < 0 else "above"
        text = facts.declared.components[component.name].weight.span.text
        end = f"`max({text}, 0)`" if side == "below" else f"`min({text}, 0)`"
        yield facts.warn(
            "schedule-turns-sign",
            f"the weight of `{component.name}` is {side} 0 {when}",
            facts.component_place(component.name, "weight"),
            note="a reward first, and a penalty then" if side == "below" else "a penalty first, and a reward then",
            help=f"hold it at 0, {end}, or say why: `allow: {{schedule-turns-sign: why}}`",
        )


def _sign_at(weight: Node, step: int, total: int) -> int:
    """-1, 0 or 1; 0 where it is too close to call."""
    moment = {"step": Fraction(step), "total_steps": Fraction(total), "progress": Fraction(step, total)}
    try:
        (value,) = GroupEvaluator(weight, [], moment)([()], {})
        return 0 if value is None or value is UNKNOWN else (value > 0) - (value < 0)
    except Inexact:
        return 0
