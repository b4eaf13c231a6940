"""A component of items that changes no advantage.

It is read, but cancels out: the advantage is the same with 0 for each of its values. Most often items are compared
within their rollout, and what is left is added up: deviations from a mean add up to 0.

```yaml
lists: {turn: {ordered: true}}
components:
  correct: {values: [0, 1]}
  tool: {values: [0, 1], level: turn}
advantage: center(correct) + sum(center(tool, over=rollout), over=rollout)
```

Compare the rollouts of the group, `center(sum(tool, over=rollout))`, or the turns of all rollouts: `center(tool)`.

All groups of two and some larger ones are tried, with lists of up to two items and some longer ones. Components that
read no list are not checked.

It follows from the formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from rewardspec.groups.blocks import lists_of
from rewardspec.groups.parts import columns_of
from rewardspec.groups.question import Group
from rewardspec.ir.exact import GroupEvaluator, of_each
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.lint.scattered import every_group_and_some
from rewardspec.lint.unread import unread
from rewardspec.ops.exact import Inexact
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("component-without-effect", __doc__)
def component_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    asked = {name: node for name, node in facts.groups.shaped_nodes.items() if _is_replaceable(facts, name, node)}
    if not asked or facts.depends_on_batch("component-without-effect"):
        return
    groups = every_group_and_some(facts, "component-without-effect")
    for name, node in asked.items():
        if groups and _changes_nothing(facts, node, groups):
            yield facts.warn(
                "component-without-effect",
                f"`{name}` changes no advantage{facts.bound}",
                facts.component_place(name),
                labels=(Label(facts.advantage_place(), "the same with 0 for each of its values"),),
                help=f"compare the rollouts of the group, or their items: `center({name})`",
            )


def _is_replaceable(facts: Facts, name: str, node: Node) -> bool:
    """Whether a component reads a list, and the advantage reads its columns through it alone."""
    root = facts.question.root
    if not lists_of(walk([node])) or node not in walk([root]) or node.domain.constant is not None:
        return False
    besides = {n.attributes[0] for n in walk([root], known=[node]) if n.op == "column"}
    return not unread(facts, name) and not columns_of([node]) & besides


def _changes_nothing(facts: Facts, node: Node, groups: list[Group]) -> bool:
    """Whether the advantages of all groups are the same with 0 for each value of a component."""
    moved, columns = False, [n for n in facts.question.fine if n is not node]
    kept = [at for at, n in enumerate(facts.question.fine) if n is not node]
    evaluators: dict[tuple[Any, ...], GroupEvaluator] = {}
    for group in groups:
        key = tuple(group.moment.items())
        if key not in evaluators:
            evaluators[key] = GroupEvaluator(facts.question.root, [*columns, node], group.moment)
        own, values = facts.groups.advantages(group), facts.groups.values(node, group)
        if own is None or values is None:
            return False
        zeros = [of_each(lambda _: Fraction(0), value) for value in values]
        rows = [(*(row[at] for at in kept), zero) for row, zero in zip(group.rollouts, zeros, strict=True)]
        try:
            other = evaluators[key](rows, group.columns)
        except Inexact:
            return False
        if own != other:
            return False
        moved = moved or any(flat(values))
    return moved
