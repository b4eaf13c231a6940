"""An outcome with a negative weight.

The component that makes an answer right has a negative weight, so right answers are penalised and wrong ones
rewarded. Most often the sign is left over from a loss or a penalty.

```yaml
components: {correct: {values: [0, 1], weight: -1}}
advantage: grpo
```

Remove the weight, or write `weight: 1`.

It follows from the formula of the weighted sum.
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
        return  # then the weight has no effect, which is another finding
    weight = component.weight.constant
    yield facts.warn(
        "negative-outcome",
        f"the weight of `{name}` is {'negative' if weight is None else format_number(weight)}, "
        "so right answers are penalised",
        facts.component_place(name, "weight"),
        help="remove the weight, or make it positive",
    )
