"""A group without spread is divided by almost nothing.

If the numerator is not 0 in a group without spread, the quotient is huge. `x / (std(x) + 1e-9)` is 1e9 in a group in
which every `x` is 1, and training does not survive such a step. `zscore` is exactly 0 there. So is
`(x - mean(x)) / (std(x) + 1e-9)`, because its numerator is 0.

```yaml
components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
advantage: zscore(correct) + style / (std(style) + 1e-9)
```

Write `zscore(style)`, or give groups without spread a value: `style / std(style) if std(style) > 0 else 0`.

It happened in NeMo-RL#4161 (rounding noise times 4000) and verl#6348.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.ir.graph import Node, walk
from rewardspec.lint.eps import SMALL
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat, side_by_side
from rewardspec.lint.registry import finding
from rewardspec.lint.table import table
from rewardspec.ops.operators import GROUP_SPREADS
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number

HUGE = 100


@finding("tiny-divisor", __doc__)
def tiny_divisor(facts: Facts) -> Iterator[Diagnostic]:
    divisors = [n.args[1] for n in walk([facts.program.advantage]) if n.op == "/"]
    if not facts.divides_by_eps and all(_padded(divisor)[0] is None for divisor in divisors):
        return
    if facts.depends_on_batch("tiny-divisor"):
        return
    facts = facts.with_eps if facts.divides_by_eps else facts
    for node in (n for n in walk([facts.question.root]) if n.op == "/"):
        spread, added = _padded(node.args[1])
        if spread is None:
            continue
        for groups in facts.groups.some.values():
            for group in groups:
                spreads, above = (facts.groups.values(n, group) for n in (spread, node.args[0]))
                advantages = facts.groups.advantages(group)
                if spreads is None or above is None or advantages is None or None in flat(advantages):
                    continue
                first = next(((x, a) for s, x, a in side_by_side(spreads, above, advantages) if s == 0 and x), None)
                if first is not None and abs(first[1]) >= HUGE:
                    yield facts.warn(
                        "tiny-divisor",
                        f"without spread, {float(first[0]):.3g} is divided by {format_number(added)}: "
                        + table(facts, group, advantages),
                        facts.own_place(node),
                        help="use `zscore`, which is 0 without spread, or give a value: `... if std(x) > 0 else 0`",
                    )
                    return


def _padded(divisor: Node) -> tuple[Node | None, Fraction]:
    """The spread and the small number of `std(x) + 1e-9` or `max(std(x), 1e-9)`."""
    while divisor.op in ("spread", "sqrt"):
        divisor = divisor.args[0]
    if divisor.op not in ("+", "maximum"):
        return None, SMALL
    for one, other in (divisor.args, divisor.args[::-1]):
        added = one.constant
        if added is not None and 0 < added <= SMALL and any(n.op in GROUP_SPREADS for n in walk([other])):
            return other, added
    return None, SMALL
