"""A stage whose condition is never true together with those of the earlier stages.

A stage counts only if its own condition and those of all earlier stages are true (PRS, Eq. 14). If no value of the
domains satisfies them together, the stage never adds anything.

```yaml
signals: {process: {values: [0, 1]}, answer: {values: [0, 1]}, bonus: {values: [0, 1]}}
components:
  staged:
    stages:
      - process
      - {add: answer, when: process >= 1}
      - {add: bonus, when: process < 1}          # an earlier stage requires process >= 1
advantage: grpo
```

A stage adds to the earlier ones (`{add: bonus, when: answer >= 1}`). A reward that replaces them is a separate
component.

It follows from the formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Expr, If, Number, Operation
from rewardspec.text.diagnostics import Diagnostic, Report


@finding("unreachable-stage", __doc__)
def unreachable_stage(facts: Facts) -> Iterator[Diagnostic]:
    for name, declaration in facts.declared.components.items():
        passed: list[Expr] = []
        for stage in declaration.stages:
            when, at = stage.when, stage.add.span
            if when is None:
                continue
            passed.append(when)
            together = passed[0] if len(passed) == 1 else Operation(when.span, "and", tuple(passed))
            lowering = Lowering(facts.declared, Report())
            try:
                counts = If(at, together, Number(at, Fraction(1)), Number(at, Fraction(0)))
                value = lowering.number(counts, lowering.user)
            except Skip:
                continue
            if value.constant == 0 or value.domain.constant == 0:
                yield facts.warn(
                    "unreachable-stage",
                    f"no rollout ever reaches this stage of `{name}`",
                    when.span,
                    note="never true after the earlier stages",
                    help="write a condition that can be true together with those of the earlier stages",
                )
