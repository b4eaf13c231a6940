"""Each component's share of the advantage, where the advantage is a sum of shares.

The advantage's last sum over components is replaced by one of its terms, and what is done to that
sum afterwards is followed as long as it is linear in it, the statistics of the sum held fixed.
"""

from __future__ import annotations

from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.types import Level


class _NotLinear(Exception):
    pass


def find_shares(graph: Graph, advantage: Node, components: int) -> list[Node] | None:
    """A share for every component, in order; None where the advantage is not a sum of them.

    They add up to the advantage, but for a rollout whose term is ignored, which has share 0.
    """
    if components == 1:
        return [advantage]
    sums = [n for n in walk([advantage]) if n.op == "sum_components" and len(n.args) == components]
    for total in reversed(sums):
        try:
            return [_linear(graph, advantage, total, term, {}) for term in total.args]
        except _NotLinear:
            continue
    return None


def _linear(graph: Graph, node: Node, total: Node, term: Node, done: dict[Node, Node]) -> Node:
    if node not in done:
        done[node] = _make(graph, node, total, term, done)
    return done[node]


def _make(graph: Graph, node: Node, total: Node, term: Node, done: dict[Node, Node]) -> Node:
    def inner(arg: Node) -> Node:
        return _linear(graph, arg, total, term, done)

    if node is total:
        return graph.coalesce(term, graph.const(0))
    if node.constant == 0:
        return node
    match node.op, node.args:
        case (("+" | "-"), (a, b)):
            return graph.apply(node.op, inner(a), inner(b))
        case "neg", (a,):
            return graph.apply("neg", inner(a))
        case "*", (a, b):
            if total in walk([a]) and a.level is Level.ROLLOUT:
                return graph.apply("*", inner(a), b)
            return graph.apply("*", a, inner(b))
        case "/", (a, b):
            return graph.apply("/", inner(a), b)
        case "if", (condition, then, otherwise):
            if otherwise.op == "missing":
                return graph.if_(condition, inner(then), graph.const(0))
            return graph.if_(condition, inner(then), inner(otherwise))
        case "spread", (a,):
            return graph.spread(inner(a), node.level)
        case (("mean" | "sum"), (a, where, *by)):
            if a.domain.missing:
                where = graph.both(where, graph.present(a))
            return graph.reduce(node.op, inner(a), where, by[0] if by else None, *node.attributes)
    raise _NotLinear
