"""A score on a continuous scale that is compared with `==`.

A value between 0 and 1 is hardly ever exactly 0.5. A score that was averaged, rounded or parsed from text misses 1 by
a little. The condition is then almost never true, and no error shows it. Counts, which have wide ranges, and rounded
values are not warned about.

```yaml
components:
  score: {range: [0, 1]}
  style: {range: [0, 1], when: score == 1}
advantage: gdpo
```

Write `score >= 1`, or a threshold that counts as full (`score >= 0.99`). Or declare the possible values
(`values: [0, 0.5, 1]`).

It follows from what an interval is.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Node
from rewardspec.lint.expressions import own_expressions
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Operation
from rewardspec.text.diagnostics import Diagnostic, Report
from rewardspec.text.numbers import format_number

NARROW = 2  # the width of a range; wider ranges can be counts


@finding("equality-on-interval", __doc__)
def equality_on_interval(facts: Facts) -> Iterator[Diagnostic]:
    lowering = Lowering(facts.declared, Report())
    for _, part in own_expressions(facts.declared):
        if not isinstance(part, Operation) or part.operator not in ("==", "!="):
            continue
        try:
            left, right = (lowering.number(operand, lowering.user) for operand in part.operands)
        except Skip:
            continue
        score, limit = (right, left) if left.constant is not None else (left, right)
        if limit.constant is None or not _is_score(score):
            continue
        text = part.operands[0 if score is left else 1].span.text
        at = format_number(limit.constant)
        better = f"`{text} >= {at}`" if limit.constant >= score.domain.hi else f"`{text} <= {at}`"
        if score.domain.lo < limit.constant < score.domain.hi:
            better = f"a threshold, `{text} >= {at}`"
        yield facts.warn(
            "equality-on-interval",
            f"`{text}` ranges over {score.domain.present()} and is hardly ever exactly {at}",
            part.span,
            help=f"write {better}, or declare `values:` instead of a range",
        )


def _is_score(node: Node) -> bool:
    """Whether a node is a measured score on a narrow scale, neither a count nor rounded."""
    while node.op in ("required", "spread", "coalesce"):
        node = node.args[0]
    domain = node.domain
    return node.op == "column" and domain.values is None and domain.bounded and domain.hi - domain.lo <= NARROW
