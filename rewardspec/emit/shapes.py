"""Shapes in the graph that one kernel computes at once, and what every value takes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.ops.domain import Level
from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.operators import REDUCTIONS, SPREADS

Key = tuple[Node, bool]  # a value as a number (False) or as a condition (True)

SUMS = frozenset({"sum_components", "+", "-", "neg"})
CHOICES = frozenset({"if", "minimum", "maximum", "coalesce"})

MOST_SUMMANDS = 64  # of one sum that are told apart when its rounding is judged


@dataclass(frozen=True)
class Weighted:
    """`sum of w * zscore(x)` over components, for one kernel to do at once."""

    terms: tuple[tuple[Node, Node | None], ...]  # (x, weight)
    over: Level
    ddof: Fraction
    eps: Node | None


@dataclass(frozen=True)
class Cancelling:
    """A sum whose terms can cancel to a remainder that is nothing but rounding.

    statistics: terms that a whole group was looked at for, whose rounding is that of the group. others: the rest.
    """

    statistics: tuple[Node, ...]
    others: tuple[Node, ...]


class Shapes:
    """What there is to find in one graph; found once."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.zscores: dict[Node, ZScore | None] = {}
        self.weighted: dict[Node, Weighted | None] = {}
        self.sums: dict[Node, list[Node] | None] = {}
        self.settling: dict[Node, Cancelling] = {}

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
        found = self.settling.get(key[0])
        terms = () if found is None or key[1] else (*found.statistics, *found.others)
        return [*self.inputs(key), *((term, False) for term in terms)]

    def inputs(self, key: Key) -> list[Key]:
        """What a value is computed from, before terms that cancel are looked at."""
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
        if node.op in ELEMENTWISE and ELEMENTWISE[node.op].hides_missing and node.domain.missing:
            numbers *= 2  # they are looked at once more, for what is missing
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
        self.find_settling(roots)
        self.uses = {root: 2 for root in roots}  # results have lines of their own
        seen, stack = set(roots), list(roots)
        while stack:
            for key in self.needs(stack.pop()):
                self.uses[key] = self.uses.get(key, 0) + 1
                if key not in seen:
                    seen.add(key)
                    stack.append(key)

    # Rounding ------------------------------------------------------------------------------------

    def find_settling(self, roots: list[Key]) -> None:
        """Finds the sums below the roots whose remainders are seen: by more than sums and measures of spread."""
        observed, seen, stack = {node for node, _ in roots}, set(roots), list(roots)
        while stack:
            key = stack.pop()
            node = key[0]
            found = self.zscore(node)
            absorbing = (
                node.op in SUMS or node.op in SPREADS or self.plain_center(node) or (found and not found.centered)
            )
            for other in self.inputs(key):
                if not absorbing:
                    observed.add(other[0])
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        for node in observed:
            found = self.cancelling(node)
            if found is not None:
                self.settling[node] = found

    def cancelling(self, node: Node) -> Cancelling | None:
        """The terms of a sum of statistics that can cancel; None for any other value."""
        if node.op not in SUMS or node.level is not Level.ROLLOUT or self.fused(node) or _is_deviation(node):
            return None
        values = node.domain.values
        if values is not None and Fraction(0) not in values:
            return None
        terms = [(t, sign) for t, sign in _terms(node) if t.constant != 0 and t.op != "missing"]
        rises = any((t.domain.hi if sign > 0 else -t.domain.lo) > 0 for t, sign in terms)
        falls = any((t.domain.lo if sign > 0 else -t.domain.hi) < 0 for t, sign in terms)
        if not (rises and falls) or len(terms) > MOST_SUMMANDS or all(_exact(t) for t, _ in terms):
            return None
        nodes = tuple(dict.fromkeys(t for t, _ in terms))
        statistics = tuple(t for t in nodes if any(n.op in REDUCTIONS for n in walk([t])))
        if not any(not _exact(t) for t in statistics):
            return None
        return Cancelling(statistics, tuple(t for t in nodes if t not in statistics))

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
        if x.op in SUMS or x.op in CHOICES:
            inner = [(a, self.summed(a)) for a in (x.args[1:] if x.op == "if" else x.args)]
            if (x.op in CHOICES or x.op == "neg") and all(s is None for _, s in inner):
                return None
            terms = [s if s is not None else [a] for a, s in inner]
            if x.op in CHOICES:  # what is not chosen is in no sum: it may be infinite, or have no value
                chosen = self.chosen(x)
                zero = self.graph.const(0)
                terms = [[self.graph.if_(c, t, zero) for t in ts] for c, ts in zip(chosen, terms, strict=True)]
            found = [t for t in dict.fromkeys(t for ts in terms for t in ts) if t.op != "missing" and t.constant != 0]
            return found if len(found) <= MOST_SUMMANDS else list(x.args)
        if x.op in ("*", "/"):
            a, b = x.args
            for summed, other, flip in ((a, b, False), (b, a, True)):
                terms = self.summed(summed) if other.level < Level.ROLLOUT and not (flip and x.op == "/") else None
                if terms is not None:
                    return [self.graph.apply(x.op, t, other) for t in terms]
        return None

    def chosen(self, x: Node) -> tuple[Node, Node]:
        """Where the first and where the second operand of a choice is its value."""
        a, b = x.args[-2:]
        match x.op:
            case "if":
                first = x.args[0]
            case "coalesce":
                first = self.graph.present(a)
            case _:
                first = self.graph.compare("<=" if x.op == "minimum" else ">=", a, b)
        return first, self.graph.negation(first)


def _terms(node: Node, sign: int = 1) -> list[tuple[Node, int]]:
    """What a sum is the sum of, each with its sign. A deviation from a mean is one value."""
    if node.op not in SUMS or _is_deviation(node):
        return [(node, sign)]
    signs = [sign] * len(node.args) if node.op != "-" else [sign, -sign]
    if node.op == "neg":
        signs = [-sign]
    return [term for a, s in zip(node.args, signs, strict=True) for term in _terms(a, s)]


def _is_deviation(node: Node) -> bool:
    if node.op != "-":
        return False
    mean = node.args[1]
    return mean.op == "mean" or (mean.op == "spread" and mean.args[0].op == "mean")


def _exact(node: Node) -> bool:
    """Whether a value was not rounded: measured, or picked among what was."""
    if node.op in ("column", "const", "count", "missing"):
        return node.domain.values is None or _exact_in_floats(node)
    if node.op in ("min", "max", "if", "coalesce", "minimum", "maximum", "spread", "neg"):
        return all(_exact(a) for a in (node.args[:1] if node.op in REDUCTIONS else node.args[-2:]))
    return _exact_in_floats(node)


def _exact_in_floats(node: Node) -> bool:
    values = node.domain.values
    return values is not None and all(
        v.denominator & (v.denominator - 1) == 0 and abs(v.numerator).bit_length() <= 20 and v.denominator <= 2**20
        for v in values
    )
