"""A weight that changes nothing.

Doubling the weight leaves every advantage as it was, or changes all of them by one factor that the
batch's normalisation cancels. A lone reward under GRPO is the usual case. Or nothing reads it:
`advantage: a + b - mean(a + b)` names components, and a name stands for the value without its weight; `total` is
the weighted sum.

```yaml
components:
  correct: {values: [0, 1], weight: 10}
advantage: grpo                                  # (R - mean) / std is the same for 10 R
```

Leave it out, or weigh something that is not normalised afterwards (`dr_grpo`). verl#7965 and UniRL#146 are days
lost on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from rewardspec.lint.changes import changes_nothing
from rewardspec.lint.expressions import reads_weights
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.unread import unread
from rewardspec.syntax.tree import Number, Operation
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("weight-without-effect", __doc__)
def weight_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    for component in facts.program.components:
        name = component.name
        if not facts.declared.components[name].says("weight") or component.weight.constant == 0:
            continue
        if unread(facts, name):
            continue  # said of the whole component
        if not reads_weights(facts.declared):
            yield facts.warn(
                "weight-without-effect",
                f"the weight of `{name}` changes no advantage",
                facts.component_place(name, "weight"),
                note="never read",
                labels=(Label(facts.advantage_place(), "a component's name stands for its value without its weight"),),
                help="write `total`, the weighted sum, or `sum(weights * ..., over=components)`",
            )
            continue
        old = facts.declared.components[name]
        twice = Operation(old.weight.span, "*", (Number(old.weight.span, Fraction(2)), old.weight))
        negative = component.weight.domain.hi < 0
        if component.weight.constant == -1:
            continue  # it is a sign, and says so
        if changes_nothing(facts, name, replace(old, weight=twice), "weight-without-effect"):
            yield facts.warn(
                "weight-without-effect",
                f"of the weight of `{name}` only the sign changes advantages"
                if negative
                else f"the weight of `{name}` changes no advantage",
                facts.component_place(name, "weight"),
                note="cancelled by the normalisation",
                help=("write -1" if negative else "leave it out")
                + ", or weigh something that is not normalised afterwards",
            )
