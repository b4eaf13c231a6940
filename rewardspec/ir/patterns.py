"""Shapes in the graph that mean more than their nodes: normalisers, and what sums to zero.

The prelude writes a z-score in the language itself. These functions find it again, whoever wrote
it, so that a mean that is zero by construction can be left out and one kernel can do the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rewardspec.ir.graph import MOST_NODES, Graph, Node, conjuncts
from rewardspec.ops.domain import Level


@dataclass(frozen=True)
class ZScore:
    """`(x - mean) / (std + eps)` where the subset and the spread allow it, 0 elsewhere.

    where: None for all. eps: None for 0. centered: the mean is 0 by construction and left out.
    """

    x: Node
    where: Node | None
    by: Node | None
    over: Level
    ddof: Fraction
    eps: Node | None
    centered: bool


def match_zscore(graph: Graph, node: Node) -> ZScore | None:
    if node.op != "if" or node.args[2].constant != 0 or node.args[1].op != "/":
        return None
    condition, quotient, _ = node.args
    known = conjuncts(condition)
    numerator, divisor = quotient.args
    std, eps = divisor, None
    if divisor.op == "+":
        std, eps = divisor.args
    if std.op != "std" or (eps is not None and eps.level is not Level.BATCH):
        return None
    x, where, *by = std.args
    over, ddof = std.attributes
    rest = known - _subset(graph, x, where)
    alive = [c for c in rest if c.op == ">" and c.args[0] is std and c.args[1].constant == 0]
    if len(alive) != 1 or len(rest) != 1 or not _subset(graph, x, where) <= known:
        return None
    inside = graph.assume(x, known)
    centered = numerator is inside
    if not centered:
        if numerator.op != "-" or numerator.args[0] is not inside:
            return None
        mean = numerator.args[1]
        if mean.op != "mean" or mean.args != std.args or mean.attributes[0] is not over:
            return None
    return ZScore(x, None if where.constant == 1 else where, by[0] if by else None, over, ddof, eps, centered)


def _subset(graph: Graph, x: Node, where: Node) -> frozenset[Node]:
    """The conditions under which a rollout is in the subset that a reduction of `x` takes."""
    needed = [] if where.constant == 1 else [where]
    if x.domain.missing:
        needed.append(graph.present(x))
    return frozenset(c for n in needed for c in conjuncts(n) if c.constant != 1)


@lru_cache(maxsize=MOST_NODES)
def sums_to_zero(graph: Graph, node: Node, unless: Node | None = None) -> bool:
    """Whether a node sums to 0 over every group by construction.

    unless: a condition outside which the value does not count; it has to be 0 there, then.
    """
    match node.op:
        case "-" if node.args[1].op == "mean" and unless is None and _plain_center(node):
            return True
        case "sum_components" | "+" | "-":
            if any(a.domain.missing for a in node.args):
                return False
            return all(sums_to_zero(graph, a, unless) for a in node.args)
        case "coalesce" if node.args[1].constant == 0:
            return sums_to_zero(graph, node.args[0], unless)
        case "neg":
            return sums_to_zero(graph, node.args[0], unless)
        case "*":
            a, b = node.args
            return (b.level < Level.ROLLOUT and sums_to_zero(graph, a, unless)) or (
                a.level < Level.ROLLOUT and sums_to_zero(graph, b, unless)
            )
        case "/":
            a, b = node.args
            return b.level < Level.ROLLOUT and sums_to_zero(graph, a, unless)
        case "if" if node.args[2].op == "missing":
            return sums_to_zero(graph, node.args[1], node.args[0])
        case "if" if node.args[2].constant == 0:
            return _centered(graph, node, unless)
        case "const":
            return node.constant == 0
    return False


def _plain_center(node: Node) -> bool:
    x, mean = node.args
    return (
        mean.args[0] is x and mean.args[1].constant == 1 and not x.domain.missing and mean.attributes[0] is Level.GROUP
    )


def _centered(graph: Graph, node: Node, unless: Node | None) -> bool:
    """`x - mean(x)`, divided or multiplied by coarser values, within its subset; 0 elsewhere."""
    condition, body, _ = node.args
    while body.op in ("/", "*"):
        a, b = body.args
        if b.level < Level.ROLLOUT:
            body = a
        elif body.op == "*" and a.level < Level.ROLLOUT:
            body = b
        else:
            return False
    if condition.level < Level.ROLLOUT and unless is None and sums_to_zero(graph, body):
        return True
    if body.op != "-" or body.args[1].op != "mean":
        return False
    mean = body.args[1]
    x, where = mean.args[:2]
    known = conjuncts(condition)
    subset = _subset(graph, x, where)
    rest = known - subset
    if mean.attributes[0] is not Level.GROUP or body.args[0] is not graph.assume(x, known) or not subset <= known:
        return False
    if any(c.level is Level.ROLLOUT for c in rest):
        return False
    if unless is None:
        return True
    counted = _disjuncts(unless)
    return any(c in counted for c in known) or graph.present(x) in counted


@lru_cache(maxsize=MOST_NODES)
def _disjuncts(condition: Node) -> frozenset[Node]:
    if condition.op == "or":
        return _disjuncts(condition.args[0]) | _disjuncts(condition.args[1])
    return frozenset([condition])
