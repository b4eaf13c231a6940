"""A rollout is rewarded for having more items.

Two rollouts are equal, but one has a turn more, a copy of its other one. It gets the larger advantage, and no turn ever
makes it smaller. The policy then learns to go on: to call a tool again, to repeat a step that is rewarded.

```yaml
lists: {turn: {ordered: true}}
signals: {called: {values: [0, 1], level: turn}}
components:
  correct: {values: [0, 1]}
  tools: {expr: "sum(called, over=rollout)", weight: 0.2}
advantage: dr_grpo
```

Reward the share, `coalesce(mean(called, over=rollout), 0)`, or at most one item, `min(sum(called, over=rollout), 1)`.
Or let each turn cost: `sum(called, over=rollout) - 0.5 * count(position, over=rollout)`. Of `returns` a discount does
not help, as long as no item is below 0.

Rollouts of one item are compared with rollouts of two, in ordered lists. If it is known which rollouts are right, both
are right, or both wrong.

It follows from the formula: the sum of more rewards is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.groups.question import Group, Rollout
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import places, side_by_side
from rewardspec.lint.registry import finding
from rewardspec.lint.right_and_wrong import right_in
from rewardspec.lint.table import table
from rewardspec.ops.domain import Level
from rewardspec.text.diagnostics import Diagnostic

MOST_PAIRS = 60  # of a rollout and the same with an item more


@finding("more-items-rewarded", __doc__, of_spec=True)
def more_items_rewarded(facts: Facts) -> Iterator[Diagnostic]:
    ordered = [level for level in facts.question.lists if facts.declared.lists[level.name].ordered]
    if not ordered or facts.depends_on_batch("more-items-rewarded"):
        return
    for level in ordered:
        found = _rewarded(facts, level)
        if found is not None:
            yield facts.warn(
                "more-items-rewarded",
                f"a rollout with the same {level} twice outranks one with it once: {table(facts, *found)}",
                facts.advantage_place(),
                help="reward the mean of the items, cap their sum (`min(sum(x, over=rollout), 1)`), or let each cost: "
                "`- 0.1 * count(position, over=rollout)`",
            )
            return


def _rewarded(facts: Facts, level: Level) -> tuple[Group, list[Any]] | None:
    """A rollout with one item and the same with two, of which the second outranks the first; None if one is below."""
    shown: tuple[Group, list[Any]] | None = None
    for group in _pairs(facts, level):
        advantages = facts.groups.advantages(group)
        if advantages is None:
            continue
        if facts.outcome is not None:
            right = right_in(facts, group)
            if right is None or right[0] is None or right[0] != right[1]:
                continue
        one, two = advantages
        pairs = list(side_by_side([one], [two]) if not isinstance(two, tuple) else [(one[0], later) for later in two])
        if any(None in pair for pair in pairs):
            continue
        if any(longer < shorter for shorter, longer in pairs):
            return None
        if shown is None and any(longer > shorter for shorter, longer in pairs):
            shown = group, advantages
    return shown


def _pairs(facts: Facts, level: Level) -> Iterator[Group]:
    """Groups of a rollout with one item of a list, and the same rollout with this item twice."""
    nodes = list(facts.question.fine)
    at = next(i for i, n in enumerate(nodes) if n.op == "position" and n.level is level)
    ones = [row for row in facts.question.states()[0] if row[at] == places(1)]
    kinds = facts.question.kinds
    for i, one in enumerate(ones[:: 1 + len(ones) // MOST_PAIRS]):
        two: Rollout = tuple(
            places(2) if n.op == "position" and n.level is level else (v[0], v[0]) if n.level is level else v
            for n, v in zip(nodes, one, strict=True)
        )
        yield Group((one, two), *kinds[i % len(kinds)])
