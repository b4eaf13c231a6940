"""Parts of the graph that one kernel computes, and the summands from which kernels judge rounding."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node
from rewardspec.ir.patterns import Center, ZScore, match_center, match_center_of_some, match_zscore
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import REDUCTIONS

Key = tuple[Node, bool]  # a value as a number (False) or as a condition (True)

MOST_SUMMANDS = 64  # of one sum, when its rounding is judged


@dataclass(frozen=True)
class Weighted:
    """The sum of w * zscore(x) over components, for one kernel."""

    terms: tuple[tuple[Node, Node | None], ...]  # (x, weight)
    over: Level
    ddof: Fraction
    eps: Node | None


class Shapes:
    """The patterns of one graph, cached for each node."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.zscores: dict[Node, ZScore | None] = {}
        self.weighted: dict[Node, Weighted | None] = {}
        self.sums: dict[Node, list[Node] | None] = {}

    def center(self, node: Node) -> Center | None:
        """`x - mean(x)`, of rollouts or items."""
        found = match_center(self.graph, node) or match_center_of_some(node)
        return found if found is not None and found.x.level >= Level.ROLLOUT else None

    def zscore(self, node: Node) -> ZScore | None:
        if node not in self.zscores:
            self.zscores[node] = match_zscore(self.graph, node)
        return self.zscores[node]

    def fused(self, node: Node) -> Weighted | None:
        """Two or more plain group z-scores in one sum over components."""
        if node not in self.weighted:
            self.weighted[node] = self.find_weighted(node)
        return self.weighted[node]

    def find_weighted(self, node: Node) -> Weighted | None:
        if node.op != "sum_components":
            return None
        terms, kinds = [], set()
        for term in node.args:
            weight, inner = None, term
            if term.op == "*" and term.args[0].level < Level.ROLLOUT:
                weight, inner = term.args
            found = self.zscore(inner)
            if found is None or found.over is not Level.GROUP or found.where or found.by or found.centered:
                return None
            if (
                found.x.level.listed
                or found.x.domain.missing
                or (weight is not None and weight.domain.missing)  # such a term adds nothing
                or self.summands(found.x) is not None
                or self.fused(found.x)
            ):
                return None
            terms.append((found.x, weight))
            kinds.add((found.over, found.ddof, found.eps))
        return Weighted(tuple(terms), *kinds.pop()) if len(kinds) == 1 else None

    def summands(self, x: Node) -> list[Node] | None:
        """The values that `x` was summed from. Rounding is relative to the largest of them.

        None if `x` is not a sum, all its terms are 0, or the sum is exact in every float type.
        """
        if self.fused(x):
            return None  # its terms are never computed separately
        found = self.summed(x)
        if not found or (exact_in_floats(x) and all(exact_in_floats(t) for t in found)):
            return None
        return found

    def summed(self, x: Node) -> list[Node] | None:
        if x not in self.sums:
            self.sums[x] = self.find_summed(x)
        return self.sums[x]

    def find_summed(self, x: Node) -> list[Node] | None:
        if self.zscore(x):
            return None
        if match_center(self.graph, x) is not None:
            return self.summed(x.args[0]) or [x.args[0]]  # the mean is at most the largest of the group
        if x.operator.sums or x.operator.chooses:
            inner = [(a, self.summed(a)) for a in (x.args[1:] if x.op == "if" else x.args)]
            if (x.operator.chooses or x.op == "neg") and all(s is None for _, s in inner):
                return None
            terms = [s if s is not None else [a] for a, s in inner]
            if x.operator.chooses:  # the other operand may be infinite or undefined
                chosen = self.chosen(x)
                zero = self.graph.const(0)
                terms = [[self.graph.if_(c, t, zero) for t in ts] for c, ts in zip(chosen, terms, strict=True)]
            found = [t for t in dict.fromkeys(t for ts in terms for t in ts) if t.op != "missing" and t.constant != 0]
            return found if len(found) <= MOST_SUMMANDS else list(x.args)
        if x.op in REDUCTIONS and x.op in ("sum", "mean") and x.attributes[0] is Level.ROLLOUT:  # over a list
            size = self.magnitude(x.args[0])
            return [self.graph.reduce(x.op, size, x.args[1], x.args[2] if len(x.args) > 2 else None, Level.ROLLOUT)]
        if x.op in ("so_far", "returns"):
            return [self.graph.scan(x.op, self.magnitude(x.args[0]), x.attributes[0])]
        if x.op in ("*", "/"):
            a, b = x.args
            for value, other, flip in ((a, b, False), (b, a, True)):
                parts = self.summed(value) if other.level < Level.ROLLOUT and not (flip and x.op == "/") else None
                if parts is not None:
                    return [self.graph.apply(x.op, part, other) for part in parts]
        return None

    def magnitude(self, x: Node) -> Node:
        """|x|: `x` itself where it is never negative, so that a sum of it is not computed twice."""
        return x if x.domain.lo >= 0 else self.graph.apply("abs", x)

    def chosen(self, x: Node) -> tuple[Node, Node]:
        """The conditions under which a choice takes its first and its second operand."""
        a, b = x.args[-2:]
        match x.op:
            case "if":
                first = x.args[0]
            case "coalesce":
                first = self.graph.present(a)
            case _:
                first = self.graph.compare("<=" if x.op == "minimum" else ">=", a, b)
        return first, self.graph.negation(first)


def is_exact(node: Node) -> bool:
    """Whether a value is not rounded: measured, or chosen among measured values."""
    if node.op in ("column", "const", "count", "missing"):
        return node.domain.values is None or exact_in_floats(node)
    if node.op in ("min", "max", "if", "coalesce", "minimum", "maximum", "spread", "neg"):
        return all(is_exact(a) for a in (node.args[:1] if node.op in REDUCTIONS else node.args[-2:]))
    return exact_in_floats(node)


def exact_in_floats(node: Node) -> bool:
    values = node.domain.values
    return values is not None and all(
        v.denominator & (v.denominator - 1) == 0 and abs(v.numerator).bit_length() <= 20 and v.denominator <= 2**20
        for v in values
    )
