"""Shapes in the graph that one kernel computes at once, and what every value takes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from rewardspec.ir.graph import Graph, Node
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.ops.reductions import REDUCTIONS, SPREADS
from rewardspec.types import Level

Key = tuple[Node, bool]  # a value as a number (False) or as a condition (True)

MOST_SUMMANDS = 64  # of one sum that are told apart when its rounding is judged


@dataclass(frozen=True)
class Weighted:
    """`sum of w * zscore(x)` over components, for one kernel to do at once."""

    terms: tuple[tuple[Node, Node | None], ...]  # (x, weight)
    over: Level
    ddof: Fraction
    eps: Node | None


class Shapes:
    """What there is to find in one graph; found once."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.zscores: dict[Node, ZScore | None] = {}
        self.weighted: dict[Node, Weighted | None] = {}
        self.sums: dict[Node, list[Node] | None] = {}

    def plain_center(self, node: Node) -> bool:
        """`x - mean(x)` over every value of a group or the batch."""
        if node.op != "-" or node.args[1].op != "mean":
            return False
        x, mean = node.args
        return (
            mean.args[0] is x
            and mean.args[1].constant == 1
            and len(mean.args) == 2
            and x.level is Level.ROLLOUT
            and not x.domain.missing
        )

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
            plain = found and found.over is Level.GROUP and not found.where and not found.by and not found.centered
            if not plain or found.x.domain.missing or self.summands(found.x) is not None or self.fused(found.x):
                return None
            terms.append((found.x, weight))
            kinds.add((found.over, found.ddof, found.eps))
        return Weighted(tuple(terms), *kinds.pop()) if len(kinds) == 1 else None

    def needs(self, key: Key) -> list[Key]:
        """The values that one line takes: each as a number or as a condition."""
        node, as_condition = key
        if node.boolean and not as_condition:
            return [(node, True)]
        if as_condition and not node.boolean:
            return [(node, False)]
        fused = self.fused(node)
        if fused:
            return [(n, False) for term in fused.terms for n in term if n is not None]
        found = self.zscore(node)
        if found:
            condition = [(found.where, True)] if found.where is not None else []
            numbers = [n for n in (found.x, found.by, *(self.summands(found.x) or ())) if n is not None]
            return [(n, False) for n in numbers] + condition
        if node.op == "not" and node.args[0].op == "present":
            return [(node.args[0].args[0], False)]
        if self.plain_center(node):
            return [(n, False) for n in (node.args[0], *(self.summands(node.args[0]) or ()))]
        conditions = [a for i, a in enumerate(node.args) if self.takes_condition(node, i)]
        numbers = [a for i, a in enumerate(node.args) if not self.takes_condition(node, i)]
        if node.op in SPREADS:
            numbers += self.summands(node.args[0]) or ()
        return [(a, False) for a in numbers] + [(a, True) for a in conditions if a.constant != 1]

    def takes_condition(self, node: Node, i: int) -> bool:
        if node.op in ("and", "or", "not"):
            return True
        if node.op == "spread":
            return node.boolean
        if node.op in REDUCTIONS:
            return i == 1 or (i == 0 and node.op in ("any", "all"))
        return node.op in ("if", "copies") and i == 0

    def count_uses(self, roots: list[Key]) -> None:
        self.uses = {root: 2 for root in roots}  # results have lines of their own
        seen, stack = set(roots), list(roots)
        while stack:
            for key in self.needs(stack.pop()):
                self.uses[key] = self.uses.get(key, 0) + 1
                if key not in seen:
                    seen.add(key)
                    stack.append(key)

    # Rounding ------------------------------------------------------------------------------------

    def summands(self, x: Node) -> list[Node] | None:
        """The values that `x` was summed from: rounding shows in the last place of the largest.

        None where nothing was summed, or every sum is exact in every float type.
        """
        if self.fused(x):
            return None  # its terms are never there one by one
        found = self.summed(x)
        if found is None or (_exact_in_floats(x) and all(_exact_in_floats(t) for t in found)):
            return None
        return found

    def summed(self, x: Node) -> list[Node] | None:
        if x not in self.sums:
            self.sums[x] = self.find_summed(x)
        return self.sums[x]

    def find_summed(self, x: Node) -> list[Node] | None:
        if self.zscore(x):
            return None
        if x.op == "-" and x.args[1].op == "mean" and x.args[1].args[0] is x.args[0]:
            return self.summed(x.args[0]) or [x.args[0]]  # the mean is no larger than the largest of the group
        if x.op in ("sum_components", "+", "-") or x.op in ("if", "neg", "minimum", "maximum", "coalesce"):
            parts = x.args[1:] if x.op == "if" else x.args
            inner = [(a, self.summed(a)) for a in parts]
            if x.op not in ("sum_components", "+", "-") and all(s is None for _, s in inner):
                return None
            terms = [t for a, s in inner for t in (s if s is not None else [a])]
            terms = [t for t in dict.fromkeys(terms) if t.op != "missing" and t.constant != 0]
            return terms if len(terms) <= MOST_SUMMANDS else list(x.args)
        if x.op in ("*", "/"):
            a, b = x.args
            for summed, other, flip in ((a, b, False), (b, a, True)):
                terms = self.summed(summed) if other.level < Level.ROLLOUT and not (flip and x.op == "/") else None
                if terms is not None:
                    return [self.graph.apply(x.op, t, other) for t in terms]
        return None


def _exact_in_floats(node: Node) -> bool:
    values = node.domain.values
    return values is not None and all(
        v.denominator & (v.denominator - 1) == 0 and abs(v.numerator).bit_length() <= 20 and v.denominator <= 2**20
        for v in values
    )
