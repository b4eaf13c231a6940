"""The exact set of a node's values, from the joint states of its leaves."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

from rewardspec.ir.node import Node, evaluate, is_elementwise
from rewardspec.ops.domain import Domain, finite
from rewardspec.ops.exact import Inexact

MOST_STATES = 512  # joint states of the leaves of a node

Table = tuple[tuple[Node, ...], dict[tuple[Any, ...], Any]]


class States:
    """The leaves of elementwise nodes, and the exact value for each joint state of them; cached for each node."""

    def __init__(self) -> None:
        self.found: dict[Node, Table | None] = {}

    def of(self, node: Node) -> Table | None:
        """None if a leaf has no finite domain, there are too many states, or a value is not exact."""
        if node not in self.found:
            self.found[node] = self.find(node)
        return self.found[node]

    def domain(self, node: Node) -> Domain | None:
        """The set of values over all states; None if unknown."""
        table = self.of(node)
        if table is None:
            return None
        values = set(table[1].values())
        missing = None in values
        values.discard(None)
        return finite(values, missing) if all(isinstance(v, Fraction) for v in values) else None

    def find(self, node: Node) -> Table | None:
        if not is_elementwise(node):
            return _leaf(node)
        inner = []
        for arg in node.args:
            table = self.of(arg)
            if table is None:
                break
            inner.append(table)
        if len(inner) < len(node.args):
            return _leaf(node) if node.boolean else None
        leaves = tuple(sorted({leaf for i in inner for leaf in i[0]}, key=lambda leaf: leaf.id))
        domains = [_possible(leaf) for leaf in leaves]
        count = 1
        for values in domains:
            count *= len(values)
        if count > MOST_STATES:
            return None
        position = {leaf: i for i, leaf in enumerate(leaves)}
        places = [[position[leaf] for leaf in i[0]] for i in inner]
        rows: dict[tuple[Any, ...], Any] = {}
        try:
            for state in product(*domains):
                known = [i[1][tuple(state[p] for p in places)] for i, places in zip(inner, places, strict=True)]
                rows[state] = evaluate(node, known)
        except (Inexact, ArithmeticError, ValueError):  # undefined in some state, or not exact
            return None
        return leaves, rows


def _leaf(node: Node) -> Table | None:
    if node.domain.values is None:
        return None
    return (node,), {(v,): v for v in _possible(node)}


def _possible(node: Node) -> tuple[Fraction | None, ...]:
    values = node.domain.values
    assert values is not None
    return (*values, None) if node.domain.missing else values
