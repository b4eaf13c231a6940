"""A gate that leaves its siblings paid.

One component counts only where the outcome is right; another one, that is no outcome, counts everywhere. A gate
inside a sum holds back its own term and no other: where the outcome fails, the other component is still paid. It
happened in OpenEnv#599.

```yaml
components:
  correct: {values: [0, 1]}
  length: {range: [0, 1], when: correct >= 1}
  style: {range: [0, 1]}                         # paid for wrong answers as well
advantage: grpo
```

Gate it too (`style: {range: [0, 1], when: correct >= 1}`), or say that it is meant:
`allow: {ungated-sibling: style counts in wrong answers as well}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import NO_OUTCOME, Facts
from rewardspec.lint.gates import counts_only_where, gates
from rewardspec.lint.paid import gate_help, paid_besides
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("ungated-sibling", __doc__)
def ungated_sibling(facts: Facts) -> Iterator[Diagnostic]:
    outcome = facts.outcome
    if outcome is None:
        if len(facts.shaped) > 1 and any(gates(facts.declared, name) for name in facts.shaped):
            facts.leave_out("ungated-sibling", NO_OUTCOME)
        return
    gated = [name for name in facts.declared.components if counts_only_where(facts.declared, name, outcome.expr)]
    if not gated:
        return
    for name in paid_besides(facts, outcome):
        yield facts.warn(
            "ungated-sibling",
            f"`{name}` is paid also where `{outcome.shown}` fails, unlike `{gated[0]}`",
            facts.component_place(name),
            labels=(Label(facts.component_place(gated[0]), "counts only where it holds"),),
            help=f"{gate_help(facts, name, outcome)}, or `allow: {{ungated-sibling: why}}`",
        )
