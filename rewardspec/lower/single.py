"""The weighted total of a single rollout, computed from some of its columns."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite

from rewardspec.ir.node import Node, is_across_rollouts, walk
from rewardspec.lower.program import Program


def total_of_one(program: Program, ended: Program, columns: Collection[str], own_total: bool) -> Node | None:
    """The weighted total of one rollout as a node of `ended`; None if no part of it follows from these columns.

    ended: the same program at the end of a long run. own_total: whether the spec defines its own `total`, which then
    replaces the sum over components. Components that depend on the group, the batch or another column are omitted, and
    those of a list's level, which have no value for the rollout.
    """
    graph = ended.graph
    terms = [
        (late.weight, late.shaped)
        for own, late in zip(program.components, ended.components, strict=True)
        if told_by(columns, own.shaped, own.weight) and not own.shaped.level.listed
    ]
    if own_total and program.total is not None and ended.total is not None and told_by(columns, program.total):
        terms = [] if program.total.level.listed else [(graph.const(1), ended.total)]
    if not terms:
        return None
    summands = [graph.apply("*", weight, graph.coalesce(x, graph.const(0))) for weight, x in terms]
    total = graph.spread(graph.sum_components(summands))
    return total if any(node.op == "column" for node in walk([total])) else None


def told_by(columns: Collection[str], *values: Node) -> bool:
    """Whether values of one rollout depend on these columns only."""
    nodes = walk(values)
    if any(is_across_rollouts(node) or node.attributes[:1] == ("batch_size",) for node in nodes):
        return False
    if any(node.op == "column" and node.attributes[0] not in columns for node in nodes):
        return False
    grows = any(node.op == "given" and node.attributes[0] != "progress" for node in nodes)
    ends = [end for node in values for end in (node.domain.lo, node.domain.hi)]
    return not grows or all(isfinite(end) for end in ends)
