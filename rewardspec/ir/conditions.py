"""Implications of conditions: which others hold, and which values are present."""

from __future__ import annotations

from functools import lru_cache

from rewardspec.ir.node import Node
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import COMPARISONS, ELEMENTWISE, GROUP_SPREADS, REDUCTIONS

MOST_KEPT = 10_000  # cached results


@lru_cache(maxsize=MOST_KEPT)
def conjuncts(condition: Node) -> frozenset[Node]:
    """The conditions that all hold where this one does: of `a and b` both."""
    if condition.op == "spread":
        return conjuncts(condition.args[0])
    if condition.op == "and":
        return conjuncts(condition.args[0]) | conjuncts(condition.args[1])
    return frozenset([condition])


@lru_cache(maxsize=MOST_KEPT)
def disjuncts(condition: Node) -> frozenset[Node]:
    """The conditions of which at least one holds where this one does: of `a or b` both."""
    if condition.op == "or":
        return disjuncts(condition.args[0]) | disjuncts(condition.args[1])
    return frozenset([condition])


@lru_cache(maxsize=MOST_KEPT)
def missing_despite(x: Node, known: frozenset[Node], level: Level = Level.ROLLOUT) -> bool:
    """Whether `x` can be missing where the conditions `known` hold. level: of the value that needs `x`."""
    if not x.domain.missing:
        return False
    if x.op == "kth":  # others may be too few
        return True
    if x.op in REDUCTIONS:
        value, where = x.args[:2]
        over, _ = x.attributes
        inside = where.constant == 1 or conjuncts(where) <= known
        inside = inside and (value.level is level or not value.level.listed)  # a list can be empty
        if inside and not missing_despite(value, known, level):
            return False  # this rollout, or item, itself is in the subset
        return not any(  # a spread or count above 0 has values
            c.op == ">"
            and c.args[1].constant is not None
            and c.args[1].constant >= 0
            and (c.args[0].op in GROUP_SPREADS or c.args[0].op == "count")
            and c.args[0].args == x.args
            and c.args[0].attributes[0] is over
            for c in known
        )
    if x.op in ELEMENTWISE or x.op == "spread":
        return any(missing_despite(a, known, level) for a in x.args)
    if any(
        x in c.args for c in known if c.op == "present" or c.op in COMPARISONS
    ):  # a comparison that holds has both operands
        return False
    if x.op == "if":
        then, otherwise = x.args[1:]
        if conjuncts(x.args[0]) <= known:
            return missing_despite(then, known, level)
        return missing_despite(then, known, level) or missing_despite(otherwise, known, level)
    return True
