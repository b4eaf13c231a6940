"""An outcome with a weight below 0.

What says that an answer is right weighs less than nothing, so that right answers are pushed down and wrong ones up.
A sign that is left over from a loss or a penalty looks like this. It follows from the formula of the weighted sum.

```yaml
components: {correct: {values: [0, 1], weight: -1}}
advantage: grpo
```

Leave the weight out, or write `weight: 1`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.expressions import reads_weights
from rewardspec.lint.facts import Facts
from rewardspec.lint.outcome import named_component
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("negative-outcome", __doc__)
def negative_outcome(facts: Facts) -> Iterator[Diagnostic]:
    outcome = facts.outcome
    name = outcome.component if outcome is not None else named_component(facts.declared, facts.program)
    component = next((c for c in facts.program.components if c.name == name), None)
    if name is None or component is None or component.weight.domain.hi >= 0 or component.shaped.domain.hi <= 0:
        return
    if not reads_weights(facts.declared):
        return  # which is said of the weight
    weight = component.weight.constant
    yield facts.warn(
        "negative-outcome",
        f"`{name}` weighs {'less than 0' if weight is None else format_number(weight)}: right answers are pushed down",
        facts.component_place(name, "weight"),
        help="leave the weight out, or write one above 0",
    )
