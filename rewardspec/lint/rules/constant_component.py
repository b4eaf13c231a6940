"""A component that is equal for all rollouts of a group.

Advantages compare the rollouts of one prompt. A value that is equal for all of them (a constant, a column of the group
or the batch) cancels, and its weight has no effect.

```yaml
signals: {difficulty: {range: [0, 1], level: group}}
components:
  correct: {values: [0, 1]}
  bonus: difficulty                              # the same for every rollout of the prompt
advantage: dr_grpo
```

Use it as a weight (`correct: {values: [0, 1], weight: difficulty}`), or let it depend on the rollout
(`bonus: difficulty * correct`). Under `grpo` a weight that is equal for the whole group cancels, too.

It happened in TTRV#4: an entropy penalty was equal for the whole group.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.rollouts import MOST_ROLLOUTS
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import ACROSS_ROLLOUTS
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("constant-component", __doc__)
def constant_component(facts: Facts) -> Iterator[Diagnostic]:
    for name, node in facts.shaped.items():
        value = node.domain.constant if node.domain.constant is not None else _only_value(node)
        of_group = node.op == "spread" and node.args[0].level < Level.ROLLOUT
        if of_group or value is not None or node.op == "const":
            always = (
                None if value is None else f"`{name}` is always {format_number(value)}, so it distinguishes no rollouts"
            )
            yield facts.warn(
                "constant-component",
                always or f"`{name}` is equal for all rollouts of a group, so it distinguishes none of them",
                facts.component_place(name),
                help="let it depend on the rollout, or use it as a weight",
            )


def _only_value(node: Node) -> Fraction | None:
    """The value of a component if it is the same for every rollout."""
    order = walk([node])
    columns = [n for n in order if n.op == "column"]
    values = [(*(c.domain.values or ()), *([None] * c.domain.missing)) for c in columns]
    if any(n.level.listed for n in order):
        return None
    if any(n.op in ACROSS_ROLLOUTS or n.op == "given" for n in order) or any(c.domain.values is None for c in columns):
        return None
    if prod(len(v) for v in values) > MOST_ROLLOUTS:
        return None
    found = set(GroupEvaluator(node, columns, {})(list(product(*values)), {}))
    return found.pop() if len(found) == 1 else None
