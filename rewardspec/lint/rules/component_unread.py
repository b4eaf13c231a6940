"""A component that the advantage does not read.

It is declared among what is rewarded, measured and logged; but `advantage` names other components and not this
one, so nothing is learnt from it. A reward that was added to the list and not to the formula looks like this, and
so does a weight dropped on the way (NeMo-RL#3852).

```yaml
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1]}
advantage: zscore(correct)
```

Add it (`grpo` and `gdpo` take all components), or declare it under `signals:` if it is only to be watched.
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
                labels=(Label(facts.advantage_place(), "reads other components alone"),),
                help="add it to the advantage, or declare it under `signals:`",
            )
