"""A schedule that is constant from the first step to the last.

A scale or weight reads `step` or `progress` but has only one value. The ramp starts after the end of training, or its
ends are equal.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1], weight: "1 - ramp(progress, start=1, end=2)"}     # progress ends at 1
advantage: grpo
```

Start and end it within the run: `weight: "1 - ramp(progress, start=0.5, end=1)"`.
`rewardspec explain SPEC --at 0,50%,100% --total-steps N` shows its values.

It follows from the formula: `progress` goes from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.expressions import names_of
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("schedule-never-moves", __doc__)
def schedule_never_moves(facts: Facts) -> Iterator[Diagnostic]:
    for component in facts.program.components:
        declaration = facts.declared.components[component.name]
        if not declaration.says("weight") or declaration.weight is None:
            continue
        moves = names_of(facts.declared, declaration.weight) & {"step", "progress"}
        if moves and component.weight.constant is not None:
            yield facts.warn(
                "schedule-never-moves",
                f"the weight of `{component.name}` is {format_number(component.weight.constant)} at every step",
                facts.component_place(component.name, "weight"),
                help="start and end it within the run: `progress` goes from 0 to 1",
            )
