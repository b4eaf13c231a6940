"""A weight that changes nothing.

Doubling the weight changes no advantage, or multiplies all of them by one factor that the batch's normalisation
removes. Most often a single reward is normalised by GRPO.

Or the weight is never read. `advantage: a + b - mean(a + b)` names components, and a name is the value without its
weight; `total` is the weighted sum.

```yaml
components:
  correct: {values: [0, 1], weight: 10}
advantage: grpo                                  # (R - mean) / std is the same for 10 R
```

Remove it, or use a scheme that keeps weights (`dr_grpo`).

With lists inside rollouts, lists of up to two items and some longer ones are tried. The message says so, unless it
follows from the formula.

It happened in verl#7965 and UniRL#146, and cost days.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from rewardspec.ir.node import walk
from rewardspec.lint.changes import changes_nothing
from rewardspec.lint.expressions import reads_weights
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.unread import unread
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.syntax.tree import Number, Operation
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("weight-without-effect", __doc__)
def weight_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    reductions = {n.op for n in walk([facts.program.advantage]) if n.op in REDUCTIONS}
    is_normalised = bool(reductions - {"mean", "sum", "count"})  # these keep weights
    for component in facts.program.components:
        name = component.name
        if not facts.declared.components[name].says("weight") or component.weight.constant == 0:
            continue
        if unread(facts, name):
            continue  # `component-unread` covers it
        if not reads_weights(facts.declared):
            yield facts.warn(
                "weight-without-effect",
                f"the weight of `{name}` changes no advantage",
                facts.component_place(name, "weight"),
                note="never read",
                labels=(Label(facts.advantage_place(), "names are values without weights"),),
                help="use `total`, the weighted sum, or `sum(weights * ..., over=components)`",
            )
            continue
        old = facts.declared.components[name]
        assert old.weight is not None, "what was lowered has a weight"
        twice = Operation(old.weight.span, "*", (Number(old.weight.span, Fraction(2)), old.weight))
        negative = component.weight.domain.hi < 0
        if component.weight.constant == -1:
            continue  # it is plainly a sign
        known = changes_nothing(facts, name, replace(old, weight=twice), "weight-without-effect")
        if known is not None:
            yield facts.warn(
                "weight-without-effect",
                f"only the sign of the weight of `{name}` changes advantages{known}"
                if negative
                else f"the weight of `{name}` changes no advantage{known}",
                facts.component_place(name, "weight"),
                note="cancelled by the normalisation" if is_normalised else "",
                help=("write -1" if negative else "remove it")
                + ", or use a scheme that keeps weights: `dr_grpo`" * (is_normalised and facts.is_summed),
            )
