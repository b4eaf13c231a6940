"""A component with weight 0.

It is measured and logged, but the weighted sum omits it. If it is only to be logged, it is a signal.

```yaml
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], weight: 0}
advantage: grpo
```

Declare it under `signals:`, remove it, or give it a weight (`weight: 0.1`).

It follows from the formula of the weighted sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic


@finding("zero-weight", __doc__)
def zero_weight(facts: Facts) -> Iterator[Diagnostic]:
    for component in facts.program.components:
        if component.weight.constant == 0:
            yield facts.warn(
                "zero-weight",
                f"`{component.name}` has weight 0: the weighted sum omits it",
                facts.component_place(component.name, "weight"),
                help="declare it under `signals:`, or remove it",
            )
