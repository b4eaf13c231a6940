"""A z-score over a subset whose values are always equal.

`where=` selects one rollout of a group, or only rollouts with equal values. Equal values have no spread, so their
z-score is always 0 and the term is dead. So is one `over=rollout` that selects one item of each list, or compares items
by a value of their rollout. The finding is reported if none of the groups of up to 32 that were tried has
a spread.

```yaml
components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
advantage: zscore(correct) + zscore(style, where=style == max(style))
```

Widen the subset (`where=rank(style) > group_size / 2`), or compare it with the rest: `style - mean(style)`.

It follows from the formula of the z-score.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from rewardspec.groups.question import Group
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.lint.scattered import scattered
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import GROUP_SPREADS
from rewardspec.text.diagnostics import Diagnostic

SIZES = (4, 8, 16, 32)  # of groups that are tried


@finding("spread-always-zero", __doc__)
def spread_always_zero(facts: Facts) -> Iterator[Diagnostic]:
    nodes = [n for n in walk([facts.question.root]) if n.op in GROUP_SPREADS and (_selects(n) or _is_of_items(n))]
    if not nodes or facts.depends_on_batch("spread-always-zero"):
        return
    groups = [group for some in facts.groups.some.values() for group in some]
    groups += [*_few_kinds(facts), *(group for size in SIZES for group in scattered(facts, size))]
    for node in nodes:
        if node.args[0].level >= Level.ROLLOUT and all(_is_flat(facts, node, group) for group in groups):
            yield facts.warn(
                "spread-always-zero",
                f"the values selected by `where=` are always equal{facts.bound}"
                if _selects(node)
                else f"the items of a rollout are always equal in this comparison{facts.bound}",
                facts.own_place(node),
                note="always 0",
                help="widen the subset, or compare it with the rest of the group: `x - mean(x)`",
            )
            return


def _selects(node: Node) -> bool:
    return node.args[1].constant is None


def _is_of_items(node: Node) -> bool:
    """Whether the items of one rollout are compared, which can all have the value of their rollout."""
    return node.attributes[0] is Level.ROLLOUT


def _few_kinds(facts: Facts) -> list[Group]:
    """Larger groups with two or four kinds of rollouts."""
    states, _ = facts.question.states()
    draw = random.Random(0)
    columns = {name: points[0] for name, points in facts.question.coarse.items()}
    return [
        Group(tuple(draw.choices(draw.sample(states, min(kinds, len(states))), k=size)), columns, moment)
        for size in SIZES
        for kinds in (2, 4)
        for moment in facts.question.moments
    ]


def _is_flat(facts: Facts, node: Node, group: Group) -> bool:
    values = facts.groups.values(node, group)
    return values is not None and all(value == 0 for value in flat(values))
