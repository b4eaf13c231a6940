"""A component that the advantage does not read.

The component is declared, measured and logged, but `advantage` names only other components, so the policy learns
nothing from it. Most often a reward was added to the list and not to the formula, or a weight was dropped.

```yaml
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1]}
advantage: zscore(correct)
```

Add it to the advantage (`grpo` and `gdpo` read all components), or declare it under `signals:` if it is only logged.

It happened in NeMo-RL#3852, where a weight was dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.unread import unread
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("component-unread", __doc__)
def component_unread(facts: Facts) -> Iterator[Diagnostic]:
    for component in facts.program.components:
        if component.weight.constant != 0 and unread(facts, component.name):
            yield facts.warn(
                "component-unread",
                f"the advantage does not depend on `{component.name}`",
                facts.component_place(component.name),
                labels=(Label(facts.advantage_place(), "reads only other components"),),
                help="add it to the advantage, or declare it under `signals:`",
            )
