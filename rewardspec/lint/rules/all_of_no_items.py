"""`all` of a list without items is true.

A rollout that never calls a tool has only calls that went well. If the policy decides how many there are, it is
rewarded for none as for a rollout in which all went well, and none is easier.

```yaml
lists: {turn: {ordered: true}}
signals: {well: {values: [0, 1], level: turn}}
components:
  correct: {values: [0, 1]}
  clean: all(well, over=rollout)
advantage: grpo
```

Ask for an item, too: `all(well, over=rollout) and any(well, over=rollout)`. Or count the share,
`coalesce(mean(well, over=rollout), 0)`.

Components and the outcome are checked, for ordered lists: how many criteria a rubric has is not for the policy to
decide.

It follows from the formula: `all` looks for an item that does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import side_by_side
from rewardspec.lint.registry import finding
from rewardspec.lint.rewarded import can_reward
from rewardspec.lint.rollouts import in_rollouts, some_rollouts
from rewardspec.ops.domain import Level
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("all-of-no-items", __doc__)
def all_of_no_items(facts: Facts) -> Iterator[Diagnostic]:
    outcome = facts.program.outcome
    asked = {} if outcome is None or facts.declared.outcome is None else {"": outcome.holds}
    asked |= {name: node for name, node in facts.shaped.items() if node.level is Level.ROLLOUT}
    seen: set[Node] = set()
    for name, whole in asked.items():
        if name and not can_reward(facts, name):
            continue
        for node in walk([whole]):
            if node in seen or not _is_all_of_list(facts, node):
                continue
            worth = _worth_without_items(whole, node.args[0].level)
            if worth is None:
                continue
            seen.add(node)
            what = f"has `{name}` {format_number(worth)}, as if all were well" if name else "counts as right"
            yield facts.warn(
                "all-of-no-items",
                f"a rollout without items of `{node.args[0].level}` {what}",
                facts.own_place(node) if name else facts.declared.place.of("outcome"),
                note="true of no items",
                help="ask for an item, too: `all(x, over=rollout) and any(x, over=rollout)`",
            )


def _is_all_of_list(facts: Facts, node: Node) -> bool:
    level = node.args[0].level if node.op == "all" else Level.ROLLOUT
    return level.listed and node.attributes[0] is Level.ROLLOUT and facts.declared.lists[level.name].ordered


def _worth_without_items(whole: Node, level: Level) -> Any:
    """The value of a rollout without items, if it is above 0 and none that was tried is greater, some are less."""
    tried = some_rollouts([whole])
    if tried is None:
        return None
    columns, rows = tried
    at = next(i for i, n in enumerate(columns) if n.op == "position" and n.level is level)
    values = side_by_side(in_rollouts(whole, columns, rows), [not row[at] for row in rows])
    known = [(value, is_empty) for value, is_empty in values if value is not None]
    most = max((value for value, is_empty in known if is_empty), default=0)
    others = [value for value, is_empty in known if not is_empty]
    return most if most > 0 and others and max(others) <= most and min(others) < most else None
