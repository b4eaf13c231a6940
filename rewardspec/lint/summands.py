"""Sums of components."""

from __future__ import annotations

from rewardspec.ir.graph import Node
from rewardspec.ops.domain import Level


def summands(node: Node, shaped: set[Node]) -> set[Node]:
    """The components of `shaped` whose weighted sum a node is; empty for any other node."""
    if node in shaped:
        return {node}
    match node.op:
        case "sum_components" | "+" | "-" | "neg" | "spread" | "required" | "*" | "/":
            inner = [a for a in node.args if a.level >= Level.ROLLOUT or node.op in ("spread", "required")]
            if len(inner) > 1 and node.op in "*/":
                return set()
        case "coalesce":
            inner = [node.args[0]]
        case "if" if node.args[2].constant is not None or node.args[2].op == "missing":
            inner = [node.args[1]]
        case _:
            return set()
    return {found for a in inner for found in summands(a, shaped)}
