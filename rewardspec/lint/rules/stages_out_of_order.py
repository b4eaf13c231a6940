"""A later stage that requires no more of a value than an earlier one.

A rollout that passed the earlier stage has passed this one: the condition has no effect. Most often two thresholds are
swapped.

```yaml
signals: {score: {range: [0, 1]}, bonus: {values: [0, 1]}, extra: {values: [0, 1]}}
components:
  staged:
    stages:
      - score
      - {add: bonus, when: score >= 0.8}
      - {add: extra, when: score >= 0.5}
advantage: grpo
```

Put the lower threshold first: `{add: bonus, when: score >= 0.5}`, then `{add: extra, when: score >= 0.8}`.

It follows from the formula: the conditions of all earlier stages hold, too (PRS, Eq. 14).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Expr, Name, Operation
from rewardspec.text.diagnostics import Diagnostic, Label, Report


@finding("stages-out-of-order", __doc__)
def stages_out_of_order(facts: Facts) -> Iterator[Diagnostic]:
    for name, declaration in facts.declared.components.items():
        required: list[tuple[str, Fraction, bool, Expr]] = []
        for when in (stage.when for stage in declaration.stages):
            found = _threshold(facts, when)
            if when is None or found is None:
                continue
            of, limit, strictly = found
            before = next((a for a in required if a[0] == of and (a[1], a[2]) >= (limit, strictly)), None)
            if before is not None:
                yield facts.warn(
                    "stages-out-of-order",
                    f"this stage of `{name}` requires no more `{of}` than an earlier stage",
                    when.span,
                    labels=(Label(before[3].span, "already required here"),),
                    help="put the lower threshold first",
                )
            required.append((of, limit, strictly, when))


def _threshold(facts: Facts, when: Expr | None) -> tuple[str, Fraction, bool] | None:
    """(name, limit, whether strictly above) of a lower bound: (score, 0.5, False) for `score >= 0.5`."""
    match when:
        case Operation(operator=(">=" | ">") as operator, operands=(Name(text=text), limit)):
            pass
        case Operation(operator=("<=" | "<") as operator, operands=(limit, Name(text=text))):
            pass
        case _:
            return None
    lowering = Lowering(facts.declared, Report())
    try:
        constant = lowering.number(limit, lowering.user).constant
    except Skip:
        return None
    return None if constant is None else (text, constant, "=" not in operator)
