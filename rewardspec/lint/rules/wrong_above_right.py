"""A wrong answer can get a larger advantage than a right one.

There is a group in which what is paid besides the outcome outweighs the outcome. That is learnt instead, as long as
it is easier. It happened in trl#4853, open-r1#360 and prime-rl#3376.

```yaml
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  length: {expr: tokens <= 4000, weight: 2}
advantage: dr_grpo
```

Gate what is paid besides (`when: correct >= 1`), or keep its weights below the outcome's:
`rewardspec verify SPEC --solve weight:length` finds how far, with
`guarantees: {order: right_above_wrong(correct)}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.paid import paid_where_wrong
from rewardspec.lint.registry import finding
from rewardspec.lint.right_and_wrong import group_with_wrong_above_right
from rewardspec.lint.table import table
from rewardspec.text.diagnostics import Diagnostic


@finding("wrong-above-right", __doc__, of_spec=True)
def wrong_above_right(facts: Facts) -> Iterator[Diagnostic]:
    outcome, found = facts.outcome, group_with_wrong_above_right(facts)
    if found is None or outcome is None:
        return
    yield facts.warn(
        "wrong-above-right",
        f"a wrong answer can be above a right one: {table(facts, *found)}",
        facts.advantage_place(),
        help=(
            f"gate what is paid besides `{outcome.shown}`, or lower its weight"
            if any(name not in outcome.reads for name in paid_where_wrong(facts))
            else "take less off right answers"
        )
        + (outcome.how != "guarantee") * f"; `{outcome.guarantee}` is a guarantee that `verify` can prove",
    )
