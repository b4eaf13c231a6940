"""By how much a group keeps a guarantee, as a number to search by."""

from __future__ import annotations

from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node

NOTHING = 2  # the margin of `all` of nothing, above what a comparison can have

_SIDES = {"<": 1, "<=": 1, ">": -1, ">=": -1, "==": 0, "!=": 0}  # 1: the right side is to be the greater


def margin(graph: Graph, node: Node) -> Node:
    """A number that is above 0 where a condition holds and below 0 where it fails; 0 where it is close.

    Relative to the size of what is compared, so that one slack fits all. Missing where nothing is compared.
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
    """The lesser (or greater) of two margins, either of which may be missing."""
    return graph.coalesce(graph.apply(op, a, b), graph.coalesce(a, b))
