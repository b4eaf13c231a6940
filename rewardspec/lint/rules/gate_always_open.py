"""A gate that is never closed.

`when:` is true for every value of the declared domains, so it has no effect. Most often the threshold is on the wrong
scale, or `>=` was written for `>`.

```yaml
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], when: correct >= 0}     # meant: correct >= 1
advantage: grpo
```

Write the threshold that separates the cases (`when: correct >= 1`), or remove `when`.

It follows from the declared domains.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Node
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import If
from rewardspec.text.diagnostics import Diagnostic, Report


@finding("gate-always-open", __doc__)
def gate_always_open(facts: Facts) -> Iterator[Diagnostic]:
    for name in facts.declared.components:
        condition = _condition(facts, name)
        if condition is not None and condition.domain.constant == 1:
            yield facts.warn(
                "gate-always-open",
                f"the gate of `{name}` is never closed",
                facts.component_place(name, "when"),
                note="always true",
                help="write the threshold that separates the cases, or remove `when`",
            )


def _condition(facts: Facts, name: str) -> Node | None:
    """The gate of a component as a node of a separate graph."""
    declaration = facts.declared.components[name]
    if declaration.when is None or not isinstance(declaration.value, If):
        return None
    lowering = Lowering(facts.declared, Report())
    try:
        return lowering.condition(declaration.when, lowering.user)
    except Skip:
        return None
