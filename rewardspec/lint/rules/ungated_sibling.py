"""One component is gated on the outcome, another one is not.

One component counts only in right answers; another component, which is not the outcome, counts everywhere. A gate
inside a sum affects only its own term, so wrong answers still get the other reward.

```yaml
components:
  correct: {values: [0, 1]}
  length: {range: [0, 1], when: correct >= 1}
  style: {range: [0, 1]}                         # rewards wrong answers as well
advantage: grpo
```

Gate it too (`style: {range: [0, 1], when: correct >= 1}`), or give a reason:
`allow: {ungated-sibling: style counts in wrong answers as well}`.

It happened in OpenEnv#599.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import NO_OUTCOME, Facts
from rewardspec.lint.gates import counts_only_where, gates
from rewardspec.lint.registry import finding
from rewardspec.lint.rewarded import also_rewarded_when_wrong, gate_help
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("ungated-sibling", __doc__)
def ungated_sibling(facts: Facts) -> Iterator[Diagnostic]:
    outcome = facts.outcome
    if outcome is None:
        if len(facts.shaped) > 1 and any(gates(facts.declared, name) for name in facts.shaped):
            facts.not_checked("ungated-sibling", NO_OUTCOME)
        return
    gated = [name for name in facts.declared.components if counts_only_where(facts.declared, name, outcome.expr)]
    if not gated:
        return
    for name in also_rewarded_when_wrong(facts, outcome):
        yield facts.warn(
            "ungated-sibling",
            f"`{name}` also rewards wrong answers, unlike `{gated[0]}`",
            facts.component_place(name),
            labels=(Label(facts.component_place(gated[0]), "counts only in right answers"),),
            help=f"{gate_help(facts, name, outcome)}, or give a reason: `allow: {{ungated-sibling: why}}`",
        )
