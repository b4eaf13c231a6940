"""A threshold on a value whose scale changes during training.

A gate compares a component with a number, and the `scale` of that component depends on `step` or `progress`. A rollout
that opens the gate today fails it tomorrow, although nothing about the rollout has changed.

```yaml
components:
  correctness: {range: [-3, 3], scale: [-2 - progress, 2 + progress]}
  length: {range: [0, 1], when: correctness >= 2}          # -2 to 2 at the start, -3 to 3 at the end
advantage: grpo
```

Compare the measured value: `when: raw(correctness) >= 3`.

It follows from the formula of `scale`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.moments import moments_of
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.gates import gate_names, gates
from rewardspec.lint.registry import finding
from rewardspec.lint.rollouts import some_rollouts
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.ops.operators import COMPARISONS
from rewardspec.syntax.tree import Expr
from rewardspec.text.diagnostics import Diagnostic, Label, Report


@finding("gate-on-moving-scale", __doc__)
def gate_on_moving_scale(facts: Facts) -> Iterator[Diagnostic]:
    for name in facts.declared.components:
        for other in sorted(gate_names(facts.declared, name)):
            component = facts.declared.components.get(other)
            if component is None or not component.says("scale") or other == name:
                continue
            if any(_moves(facts, gate, other) for gate in gates(facts.declared, name)):
                yield facts.warn(
                    "gate-on-moving-scale",
                    f"the gate of `{name}` compares `{other}`, whose scale changes during training",
                    facts.component_place(name, "when" if facts.declared.components[name].says("when") else "stages"),
                    labels=(Label(facts.component_place(other, "scale"), "changes during training"),),
                    help=f"compare the measured value: `raw({other})`"
                    if other in facts.declared.columns
                    else f"compare the columns that `{other}` is computed from",
                )


def _moves(facts: Facts, gate: Expr, other: str) -> bool:
    """Whether a rollout passes a gate at one moment and not at another, because the value of `other` changes."""
    lowering = Lowering(facts.declared, Report())
    try:
        condition = lowering.condition(gate, lowering.user)
        value = lowering.component(other)
    except Skip:
        return False
    compared = [n for n in walk([condition]) if n.op in COMPARISONS and value in walk([n])]
    tried = some_rollouts([condition])
    if tried is None or not any(n.op == "given" for n in walk([value])):
        return False
    columns, rows = tried
    moments, _ = moments_of([condition])
    seen = [[GroupEvaluator(n, columns, moment)(rows, {}) for moment in moments] for n in (condition, *compared)]
    passes, *comparisons = ([set(at) for at in zip(*by_moment, strict=True)] for by_moment in seen)
    return any(
        len(passes[i]) > 1 and any(len(comparison[i]) > 1 for comparison in comparisons) for i in range(len(rows))
    )
