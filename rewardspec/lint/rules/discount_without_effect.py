"""A discount that changes nothing.

With `gamma=1` every advantage is the same. Most often the returns are only compared with 0, or only the last item of a
list is read, which nothing follows.

```yaml
lists: {turn: {ordered: true}}
signals: {gained: {values: [0, 1], level: turn}}
components:
  correct: {values: [0, 1]}
  useful: {expr: "returns(gained, gamma=0.9) > 0"}
advantage: sum(center(rewards), over=components)
```

Use the value, `returns(gained, gamma=0.9)`, or leave the discount away: `returns(gained) > 0`.

All groups of two and some larger ones are tried, with lists of up to two items and some longer ones.

It follows from the formula of `returns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from rewardspec.groups.question import Group
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.lint.scattered import every_group_and_some
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operators import SCANS
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("discount-without-effect", __doc__)
def discount_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    root = facts.question.root
    discounted = [n for n in walk([root]) if n.op == "returns" and n.attributes[0] != 1]
    if not discounted or facts.depends_on_batch("discount-without-effect"):
        return
    groups = every_group_and_some(facts, "discount-without-effect")
    for node in discounted:
        if groups and _changes_nothing(facts, node, groups):
            yield facts.warn(
                "discount-without-effect",
                f"the discount {format_number(node.attributes[0])} of `returns` changes no advantage{facts.bound}",
                facts.own_place(node),
                help="leave `gamma` away, or use the value of the returns",
            )


class _Undiscounted(GroupEvaluator):
    """Evaluates as if one `returns` had no discount."""

    without: Node

    def scan(self, node: Node, items: tuple[Any, ...]) -> Sequence[Any]:
        if node is not self.without:
            return super().scan(node, items)
        found: Sequence[Any] = SCANS[node.op].exact(items, self.number(Fraction(1)))
        return found


def _changes_nothing(facts: Facts, node: Node, groups: list[Group]) -> bool:
    moved, columns = False, list(facts.question.fine)
    evaluators: dict[tuple[Any, ...], _Undiscounted] = {}
    for group in groups:
        key = tuple(group.moment.items())
        if key not in evaluators:
            evaluators[key] = _Undiscounted(facts.question.root, columns, group.moment)
            evaluators[key].without = node
        own = facts.groups.advantages(group)
        try:
            other = evaluators[key](group.rollouts, group.columns)
        except Inexact:
            return False
        if own is None or own != other:
            return False
        moved = moved or any(flat(own))
    return moved
