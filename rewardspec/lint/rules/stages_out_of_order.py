"""A later stage asks for no more of the same thing than an earlier one.

Who has passed the earlier stage has passed this one: its condition does nothing, and most often two thresholds are
swapped. It follows from the formula: the conditions of all stages before hold, too (PRS, Eq. 14).

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
        asked: list[tuple[str, Fraction, bool, Expr]] = []
        for when in (stage.when for stage in declaration.stages):
            found = _threshold(facts, when)
            if when is None or found is None:
                continue
            of, limit, strictly = found
            before = next((a for a in asked if a[0] == of and (a[1], a[2]) >= (limit, strictly)), None)
            if before is not None:
                yield facts.warn(
                    "stages-out-of-order",
                    f"this stage of `{name}` asks for no more of `{of}` than one before",
                    when.span,
                    labels=(Label(before[3].span, "asked for already"),),
                    help="put the lower threshold first",
                )
            asked.append((of, limit, strictly, when))


def _threshold(facts: Facts, when: Expr | None) -> tuple[str, Fraction, bool] | None:
    """What a condition asks for more of, how much, and whether more than that: of `score >= 0.5`, score, 0.5 and no."""
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
