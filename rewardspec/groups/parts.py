"""The parts of an advantage: terms of its outermost sum that share no column.

`zscore(correct) + zscore(length)` has two parts. Their values combine freely, so the advantages that a group can have
follow from those of each part. Parts are found in the graph, under any name of the scheme.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewardspec.groups.blocks import lists_of
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, walk

MOST_TERMS = 2000  # of one sum


def independent_terms(graph: Graph, root: Node) -> list[Node]:
    """Nodes that add up to `root`, no two of which read the same column: as many as possible."""
    return _apart(graph, _terms(graph, root))


def _terms(graph: Graph, node: Node) -> list[Node]:
    """The terms of a node; the node itself if there are more than `MOST_TERMS`, as in sums of a value with itself."""
    try:
        return _some_terms(graph, node, [MOST_TERMS])
    except _TooManyTerms:
        return [node]


class _TooManyTerms(Exception):
    pass


def _some_terms(graph: Graph, node: Node, left: list[int]) -> list[Node]:
    left[0] -= 1
    if left[0] < 0:
        raise _TooManyTerms
    match node.op, node.args:
        case (("+" | "sum_components"), args) if not any(a.domain.missing for a in args):
            return [t for a in args for t in _some_terms(graph, a, left)]
        case "-", (a, b):
            return [*_some_terms(graph, a, left), *(graph.apply("neg", t) for t in _some_terms(graph, b, left))]
        case "neg", (a,):
            return [graph.apply("neg", t) for t in _some_terms(graph, a, left)]
        case "*", (a, b) if a.constant is not None or b.constant is not None:
            factor, inner = (a, b) if a.constant is not None else (b, a)
            return [graph.apply("*", factor, t) for t in _some_terms(graph, inner, left)]
        case "/", (a, b) if b.constant is not None:
            return [graph.apply("/", t, b) for t in _some_terms(graph, a, left)]
        case (("mean" | "sum"), (x, where)) if where.constant == 1 and not x.domain.missing:
            terms = _some_terms(graph, x, left)
            if x.level.listed:  # a rollout's value counts once for each of its items
                terms = [graph.spread(t, x.level) for t in terms]
            return [graph.reduce(node.op, t, where, None, *node.attributes) for t in terms]
        case "spread", (x,):
            return [graph.spread(t, node.level) for t in _some_terms(graph, x, left)]
    return [node]


def _apart(graph: Graph, terms: Sequence[Node]) -> list[Node]:
    """The terms, with those that share a column summed."""
    blocks: list[tuple[set[object], list[Node]]] = []
    for term in terms:
        names, members = sources_of([term]), [term]
        rest = []
        for block in blocks:
            if block[0] & names:
                names, members = names | block[0], [*block[1], *members]
            else:
                rest.append(block)
        blocks = [*rest, (names, members)]
    if len(blocks) > 1:  # a term without columns joins the first block
        fixed = [block for block in blocks if not block[0]]
        blocks = [block for block in blocks if block[0]] or fixed[:1]
        blocks[0][1].extend(t for block in fixed for t in block[1] if block is not blocks[0])
    return [graph.sum_components(members) if len(members) > 1 else members[0] for _, members in blocks]


def connected(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The nodes in blocks: nodes that share a column are in one block."""
    blocks: list[tuple[set[object], tuple[Node, ...]]] = []
    for node in nodes:
        names = sources_of([node])
        members: tuple[Node, ...] = (node,)
        touching = [block for block in blocks if block[0] & names]
        for block in touching:
            names, members = names | block[0], block[1] + members
        blocks = [block for block in blocks if block not in touching] + [(names, members)]
    return [members for _, members in blocks]


def sources_of(nodes: Sequence[Node]) -> set[object]:
    """What nodes read that varies independently: names of columns, and lists, whose columns are equally long."""
    read = walk(nodes)
    return {n.attributes[0] for n in read if n.op == "column" and not n.level.listed} | {*lists_of(read)}


def columns_of(nodes: Sequence[Node]) -> set[str]:
    return {node.attributes[0] for node in walk(nodes) if node.op == "column"}
