"""eps compared with the spreads of the declared values."""

from __future__ import annotations

from fractions import Fraction

from rewardspec.ir.exact import items_of
from rewardspec.ir.graph import Node, walk
from rewardspec.ir.patterns import match_zscore
from rewardspec.lint.facts import Facts, once
from rewardspec.ops.domain import Level

SMALL = Fraction(1, 1000)  # the largest number that is added only to avoid a division by 0


@once
def outweighed_by_eps(facts: Facts) -> tuple[Node, float] | None:
    """A z-score within groups whose values are so close together that eps is the larger part of its divisor.

    With it comes the smallest positive spread of these values.
    """
    eps = facts.declared.eps
    graph = facts.question.program.graph
    for node in walk([facts.question.root]):
        found = match_zscore(graph, node)
        if found is None or found.over is not Level.GROUP or not eps or not _uses_eps(facts):
            continue
        if any(n.domain.values is None for n in walk([found.x]) if n.op == "column"):
            continue
        std = next(n for n in walk([node.args[1].args[1]]) if n.op == "std")
        groups = (group for some in facts.groups.some.values() for group in some)
        all_values = (facts.groups.values(std, group) for group in groups)
        spreads = [float(v) for values in all_values if values is not None for v in items_of(values[0]) if v]
        if spreads and min(spreads) < eps:
            return node, min(spreads)
    return None


@once
def _uses_eps(facts: Facts) -> bool:
    """Whether z-scores within groups, in the spec's own graph, have eps in their divisors."""
    found = (match_zscore(facts.program.graph, n) for n in walk([facts.program.advantage]))
    return any(z is not None and z.eps is not None and z.over is Level.GROUP for z in found)
