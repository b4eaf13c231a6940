"""Which items of a list a statistic over groups takes together, in some groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.ir.exact import items_of
from rewardspec.ir.graph import Node
from rewardspec.lint.facts import Facts
from rewardspec.lint.scattered import scattered

Taken = list[tuple[int, int, Any]]  # rollout, place from 1 and subset of each item that takes part


def pooled(facts: Facts, node: Node) -> Iterator[tuple[list[int], Taken]]:
    """Of each group the lengths of its lists, and the items that a reduction of list level takes.

    node: of the question's program. Groups in which a value has no exact form are left out.
    """
    for group in scattered(facts, more_items=2):
        parts = [values for part in node.args[:3] if (values := facts.groups.values(part, group)) is not None]
        if len(parts) < len(node.args[:3]):
            continue
        x, where, by = parts if len(parts) == 3 else (*parts, [None] * len(group.rollouts))
        lengths, taken = [], []
        for rollout, (items, holds, subsets) in enumerate(zip(x, where, by, strict=True)):
            lengths.append(len(items))
            every = [v * len(items) if len(v) == 1 else v for v in map(items_of, (holds, subsets))]
            of_items = zip(items, *every, strict=True)
            taken += [(rollout, i + 1, s) for i, (v, c, s) in enumerate(of_items) if v is not None and c == 1]
        yield lengths, taken
