"""Patterns in the graph: `x - mean(x)`, z-scores, and values that sum to zero.

The prelude writes a z-score in the language itself. These functions recognise it wherever it is written, so that a
mean that is zero by construction is removed, one kernel computes it, and findings can name it. Why z-scores are not
nodes: docs/design.md, "Decisions".
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from rewardspec.ir.conditions import MOST_KEPT, conjuncts, disjuncts
from rewardspec.ir.node import Node
from rewardspec.ops.domain import Level

if TYPE_CHECKING:
    from rewardspec.ir.graph import Graph


@dataclass(frozen=True)
class Center:
    """`x - mean(x)`. where: None for all."""

    x: Node
    where: Node | None
    by: Node | None
    over: Level

    @property
    def of_all(self) -> bool:
        """Whether every rollout of the group (or batch) is in the mean."""
        return self.where is None and not self.x.domain.missing


@dataclass(frozen=True)
class ZScore:
    """`(x - mean) / (std + eps)` within the subset and where there is spread, 0 elsewhere.

    where: None for all. eps: None for 0. centered: the mean is 0 by construction and not subtracted.
    """

    x: Node
    where: Node | None
    by: Node | None
    over: Level
    ddof: Fraction
    eps: Node | None
    centered: bool


def match_center(graph: Graph, node: Node, known: frozenset[Node] = frozenset()) -> Center | None:
    """`x - mean(x)`, with `x` simplified under the conditions `known`; else None."""
    found = _less_mean(node)
    if found is None or node.args[0] is not (graph.assume(found.x, known) if known else found.x):
        return None
    return found


def match_center_of_some(node: Node) -> Center | None:
    """`y - mean(x)`, where `x` is `y` under a condition and missing elsewhere; else None."""
    found = _less_mean(node)
    if found is None or found.x.op != "if" or found.x.level is not node.level:
        return None
    _, then, otherwise = found.x.args
    return found if then is node.args[0] and otherwise.op == "missing" else None


def _less_mean(node: Node) -> Center | None:
    """`y - mean(x)`, whatever `y` is, if that is of the node's level; else None."""
    if node.op != "-":
        return None
    value, mean = node.args[0], _unspread(node.args[1])
    if mean.op != "mean" or value.level is not node.level:
        return None
    x, where, *by = mean.args
    return Center(x, None if where.constant == 1 else where, by[0] if by else None, mean.attributes[0])


def _unspread(node: Node) -> Node:
    """A value without being repeated for each rollout or item, as behind a gate that the domains decide."""
    return node.args[0] if node.op == "spread" else node


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
    subset = _subset(graph, x, where)
    rest = known - subset
    alive = [c for c in rest if c.op == ">" and c.args[0] is std and c.args[1].constant == 0]
    if len(alive) != 1 or len(rest) != 1 or not subset <= known:
        return None
    centered = numerator is graph.assume(x, known)
    if centered:  # else it is no z-score, but `x / std(x)`
        whole = not by and x.level is Level.ROLLOUT and (where.constant == 1 or where.level < Level.ROLLOUT)
        if not (whole and sums_to_zero(graph, x)):
            return None
    else:
        center = match_center(graph, numerator, known)
        if center is None or _unspread(numerator.args[1]).args != std.args or center.over is not over:
            return None
    return ZScore(x, None if where.constant == 1 else where, by[0] if by else None, over, ddof, eps, centered)


def _subset(graph: Graph, x: Node, where: Node | None) -> frozenset[Node]:
    """The conditions under which a reduction of `x` includes a rollout."""
    needed = [] if where is None or where.constant == 1 else [where]
    if x.domain.missing:
        needed.append(graph.present(x))
    return frozenset(c for n in needed for c in conjuncts(n) if c.constant != 1)


@lru_cache(maxsize=MOST_KEPT)
def sums_to_zero(graph: Graph, node: Node, unless: Node | None = None) -> bool:
    """Whether a node sums to 0 over every group by construction.

    unless: a condition outside of which the value is ignored; it must be 0 there.
    """
    if unless is None:
        center = match_center(graph, node)
        if center is not None and center.of_all and center.over is Level.GROUP:
            return True
    match node.op, node.args:
        case (("sum_components" | "+" | "-" | "neg"), args):
            if len(args) > 1 and any(a.domain.missing for a in args):
                return False
            return all(sums_to_zero(graph, a, unless) for a in args)
        case "coalesce", (x, otherwise) if otherwise.constant == 0:
            return sums_to_zero(graph, x, unless)
        case "*", (a, b):
            return (b.level < Level.ROLLOUT and sums_to_zero(graph, a, unless)) or (
                a.level < Level.ROLLOUT and sums_to_zero(graph, b, unless)
            )
        case "/", (a, b):
            return b.level < Level.ROLLOUT and sums_to_zero(graph, a, unless)
        case "if", (condition, then, otherwise) if otherwise.op == "missing":
            return sums_to_zero(graph, then, condition)
        case "if", (_, _, otherwise) if otherwise.constant == 0:
            return _centered(graph, node, unless)
        case "const", _:
            return node.constant == 0
    return False


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
    known = conjuncts(condition)
    center = match_center(graph, body, known)
    if center is None or center.over is not Level.GROUP:
        return False
    subset = _subset(graph, center.x, center.where)
    if not subset <= known or any(c.level is Level.ROLLOUT for c in known - subset):
        return False
    if unless is None:
        return True
    counted = disjuncts(unless)
    return any(c in counted for c in known) or graph.present(center.x) in counted
