"""The margin by which a group keeps a guarantee: the number that `search` minimises."""

from __future__ import annotations

from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node

NOTHING = 2  # the margin of `all` over no values, above every margin of a comparison

_SIDES = {"<": 1, "<=": 1, ">": -1, ">=": -1, "==": 0, "!=": 0}  # 1: the right side should be greater


def margin(graph: Graph, node: Node) -> Node:
    """A number that is positive where a condition is true, negative where it is false, and 0 on the border.

    `a < b` has (b - a) / max(|a| + |b|, 1): relative to the size of both sides. Missing where nothing is compared.
    """
    match node.op, node.args:
        case "not", (a,):
            return graph.apply("neg", margin(graph, a))
        case "and", (a, b):
            return _both(graph, "minimum", margin(graph, a), margin(graph, b))
        case "or", (a, b):
            return _both(graph, "maximum", margin(graph, a), margin(graph, b))
        case "spread", (a,):
            return graph.spread(margin(graph, a), node.level)
        case (("any" | "all"), (a, where, *by)) if not by:
            reduction = "max" if node.op == "any" else "min"
            empty = graph.const(-NOTHING if node.op == "any" else NOTHING)
            return graph.coalesce(graph.reduce(reduction, margin(graph, a), where, None, *node.attributes), empty)
        case op, (a, b) if op in _SIDES:
            gap = graph.apply("-", b, a) if _SIDES[op] >= 0 else graph.apply("-", a, b)
            size = graph.apply("+", graph.apply("abs", a), graph.apply("abs", b))
            scale = graph.apply("maximum", size, graph.const(1))
            if op in ("==", "!="):
                gap = graph.apply("abs", gap)
                gap = gap if op == "!=" else graph.apply("neg", gap)
            return graph.apply("/", gap, scale)
    return graph.if_(node, graph.const(1), graph.const(-1))


def _both(graph: Graph, op: str, a: Node, b: Node) -> Node:
    """The lesser or greater of two margins; the other one if one is missing."""
    return graph.coalesce(graph.apply(op, a, b), graph.coalesce(a, b))
