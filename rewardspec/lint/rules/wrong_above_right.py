"""A wrong answer can outrank a right one.

In some group the other rewards outweigh the outcome, so a wrong answer gets the larger advantage. The policy learns
those rewards instead, as long as they are easier.

```yaml
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  length: {expr: tokens <= 4000, weight: 2}
advantage: dr_grpo
```

Gate the other rewards (`when: correct >= 1`), or keep their weights below the outcome's:
`rewardspec verify SPEC --solve weight:length` finds the limit, with
`guarantees: {order: right_above_wrong(correct)}`.

With a list, each item of the wrong answer is above each of the right one. In ordered lists a wrong answer with 4, 8 or
16 equal items is tried, too: a sum over turns grows until it outweighs the outcome.

It happened in trl#4853, open-r1#360 and prime-rl#3376.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.rewarded import rewarded_when_wrong
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
        f"a wrong answer can outrank a right one: {table(facts, *found)}",
        facts.advantage_place(),
        help=(
            f"gate the other rewards with `when: {outcome.condition}`, or lower their weights"
            if any(name not in outcome.reads for name in rewarded_when_wrong(facts))
            else "penalise right answers less"
        )
        + (outcome.how != "guarantee") * f"; `verify` can prove the guarantee `{outcome.guarantee}`",
    )
