"""A weight that changes its sign within the run.

A schedule that should fade out continues to fall. From the step at which it crosses 0 the reward is a penalty, and the
policy unlearns what it was taught. The length of the run is an option, `rewardspec check SPEC --total-steps 300`;
without it schedules over `step` are not checked.

```yaml
components:
  correct: {values: [0, 1]}
  explore: {range: [0, 1], weight: 1 - step / 100}         # --total-steps 300
advantage: gdpo
```

Clip it at 0: `weight: max(1 - step / 100, 0)`.

It follows from the formula of the weight.
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

GRID = 400  # moments of a run at which a weight is computed


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
            facts.not_checked("schedule-turns-sign", NO_LENGTH)
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
        weight = facts.declared.components[component.name].weight
        assert weight is not None, "what was lowered has a weight"
        text = weight.span.text
        end = f"`max({text}, 0)`" if side == "below" else f"`min({text}, 0)`"
        yield facts.warn(
            "schedule-turns-sign",
            f"the weight of `{component.name}` is {side} 0 {when}",
            facts.component_place(component.name, "weight"),
            note="first a reward, then a penalty" if side == "below" else "first a penalty, then a reward",
            help=f"clip it at 0: {end}, or give a reason: `allow: {{schedule-turns-sign: why}}`",
        )


def _sign_at(weight: Node, step: int, total: int) -> int:
    """-1, 0 or 1; 0 also if the value is too close to 0 to decide."""
    moment = {"step": Fraction(step), "total_steps": Fraction(total), "progress": Fraction(step, total)}
    try:
        (value,) = GroupEvaluator(weight, [], moment)([()], {})
        return 0 if value is None or value is UNKNOWN else (value > 0) - (value < 0)
    except Inexact:
        return 0
