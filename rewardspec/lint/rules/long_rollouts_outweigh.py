"""A mean or deviation over the turns of a group, in which long rollouts outweigh short ones.

`mean(x)` of turns takes all turns of the group together. A rollout of twelve turns then counts six times as much as
one of two, so the baseline is mostly that of the long rollouts.

```yaml
lists: {turn: {ordered: true}}
signals: {gained: {range: [0, 1], level: turn}}
components: {correct: {values: [0, 1]}}
advantage: zscore(correct) + center(gained)
```

Of two rollouts one gains [1, 1], the other twelve times 0. Over the turns the mean is 2 / 14, so the good turns have
0.86 and the others -0.14. Over the rollouts it is 0.5: 0.5 and -0.5.

Count rollouts equally, `gained - mean(mean(gained, over=rollout))`; or make one value of each rollout first,
`zscore(sum(gained, over=rollout))`. Trainers that treat every turn as a sample of its own do the same unseen:
Agent-lightning, https://github.com/microsoft/agent-lightning/pull/445.

A statistic that takes one turn of each rollout, `mean(gained, where=position == 1)`, counts them equally already.

It follows from the formula.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.pooled import pooled
from rewardspec.lint.registry import finding
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic

_AVERAGES = frozenset(REDUCTIONS) - {"count", "sum", "any", "all", "min", "max", "kth"}


@finding("long-rollouts-outweigh", __doc__)
def long_rollouts_outweigh(facts: Facts) -> Iterator[Diagnostic]:
    program = facts.question.program
    for node in walk([program.advantage, *(c.shaped for c in program.components)]):
        if node.op not in _AVERAGES or len(node.args) > 2 or node.attributes[0] is Level.ROLLOUT:
            continue
        level = node.args[0].level
        if level.listed and facts.declared.lists[level.name].ordered and _counts_some_twice(facts, node):
            yield facts.warn(
                "long-rollouts-outweigh",
                f"a rollout with more items of `{level}` counts more in this comparison",
                facts.own_place(node),
                help="count rollouts equally, `x - mean(mean(x, over=rollout))`, or make one value of each: "
                "`zscore(sum(x, over=rollout))`",
            )
            return


def _counts_some_twice(facts: Facts, node: Node) -> bool:
    """Whether more than one item of a rollout takes part: not where `where=` selects the first or the last."""
    return any(len(taken) > len({rollout for rollout, _, _ in taken}) for _, taken in pooled(facts, node))
