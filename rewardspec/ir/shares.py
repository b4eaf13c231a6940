"""Each component's share of the advantage, where the advantage is a sum of shares.

With `(a + b - mean(a + b)) / std(a + b)` the share of `a` is `(a - mean(a)) / std(a + b)`: the last sum over components
is replaced by one of its terms. All later operators must be linear in the sum, with its spread held fixed.
"""

from __future__ import annotations

from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level


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
            return [_Linear(graph, advantage, total, term).share(advantage) for term in total.args]
        except _NotLinear:
            continue
    return None


class _Linear:
    """Applies the operators from `total` to the advantage to one of its terms."""

    def __init__(self, graph: Graph, advantage: Node, total: Node, term: Node):
        self.graph, self.total, self.term = graph, total, term
        self.done: dict[Node, Node] = {}
        self.depends: set[Node] = set()  # on the total
        for node in walk([advantage]):
            if node is total or any(a in self.depends for a in node.args):
                self.depends.add(node)

    def share(self, node: Node) -> Node:
        if node not in self.done:
            self.done[node] = self.make(node)
        return self.done[node]

    def make(self, node: Node) -> Node:
        graph = self.graph
        if node is self.total:
            share = graph.coalesce(self.term, graph.const(0))
            return graph.spread(share, node.level) if node.level.listed else share
        if node.constant == 0:
            return node
        match node.op, node.args:
            case (("+" | "-"), (a, b)):
                return graph.apply(node.op, self.share(a), self.share(b))
            case "coalesce", (a, otherwise) if otherwise.constant == 0:
                return self.share(a)
            case "neg", (a,):
                return graph.apply("neg", self.share(a))
            case "*", (a, b):
                if a in self.depends and a.level >= Level.ROLLOUT:
                    return graph.apply("*", self.share(a), b)
                return graph.apply("*", a, self.share(b))
            case "/", (a, b):
                return graph.apply("/", self.share(a), b)
            case "if", (condition, then, otherwise):
                if otherwise.op == "missing":
                    return graph.if_(condition, self.share(then), graph.const(0))
                return graph.if_(condition, self.share(then), self.share(otherwise))
            case "spread", (a,):
                return graph.spread(self.share(a), node.level)
            case (("mean" | "sum"), (a, where, *by)):
                if a.domain.missing:
                    where = graph.both(where, graph.present(a))
                return graph.reduce(node.op, self.share(a), where, by[0] if by else None, *node.attributes)
        raise _NotLinear
