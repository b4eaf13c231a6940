"""The operands of each value in emitted source, how often each value is used, and sums that can cancel."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from rewardspec.emit.shapes import MOST_SUMMANDS, Key, Shapes, is_exact
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import ELEMENTWISE, REDUCTIONS, SPREADS


@dataclass(frozen=True)
class Cancelling:
    """A sum whose terms can cancel, so that only rounding is left.

    statistics: terms computed from a whole group, whose rounding is that of the group. others: the rest.
    """

    statistics: tuple[Node, ...]
    others: tuple[Node, ...]


class Uses:
    """How often each value below some roots is used."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.settling: dict[Node, Cancelling] = {}
        self.count: dict[Key, int] = {}

    def needs(self, key: Key) -> list[Key]:
        """The values that one line uses, each as a number or as a condition."""
        found = self.settling.get(key[0])
        terms = () if found is None or key[1] else (*found.statistics, *found.others)
        return [*self.inputs(key), *((term, False) for term in terms)]

    def inputs(self, key: Key) -> list[Key]:
        """The operands of a value, without the terms for `settled`."""
        node, as_condition = key
        if node.boolean and not as_condition:
            return [(node, True)]
        if as_condition and not node.boolean:
            return [(node, False)]
        fused = self.shapes.fused(node)
        if fused:
            return [(n, False) for term in fused.terms for n in term if n is not None]
        found = self.shapes.zscore(node)
        if found:
            condition = [(found.where, True)] if found.where is not None else []
            numbers = [n for n in (found.x, found.by, *(self.shapes.summands(found.x) or ())) if n is not None]
            return [(n, False) for n in numbers] + condition
        if node.op == "not" and node.args[0].op == "present":
            return [(node.args[0].args[0], False)]
        center = self.shapes.center(node)
        if center:
            numbers = [center.x, center.by, *(self.shapes.summands(center.x) or ())]
            numbers += [center.x] * center.x.domain.missing + [node.args[1]] * (center.where is not None)
            condition = [(center.where, True)] if center.where is not None else []
            return [(n, False) for n in numbers if n is not None] + condition
        conditions = [a for i, a in enumerate(node.args) if takes_condition(node, i)]
        numbers = [a for i, a in enumerate(node.args) if not takes_condition(node, i)]
        op = ELEMENTWISE.get(node.op)
        if op is not None and op.hides_missing and node.domain.missing:
            numbers *= 2  # used again in the test for missing values
        if node.op in SPREADS:
            numbers += self.shapes.summands(node.args[0]) or ()
        return [(a, False) for a in numbers] + [(a, True) for a in conditions if a.constant != 1]

    def count_from(self, roots: list[Key]) -> None:
        """Reset `count` to the uses below these roots. `settling` is kept and extended."""
        self.find_settling(roots)
        self.count = {root: 2 for root in roots}  # results have separate lines
        seen, stack = set(roots), list(roots)
        while stack:
            for key in self.needs(stack.pop()):
                self.count[key] = self.count.get(key, 0) + 1
                if key not in seen:
                    seen.add(key)
                    stack.append(key)

    def find_settling(self, roots: list[Key]) -> None:
        """Find the sums below the roots that can cancel and that operators other than sums and spreads use."""
        observed = {node: None for node, _ in roots}  # a dict, for a fixed order
        seen, stack = set(roots), list(roots)
        while stack:
            key = stack.pop()
            node = key[0]
            found = self.shapes.zscore(node)
            deviations = self.shapes.center(node) or (found is not None and not found.centered)
            absorbing = node.operator.sums or node.op in SPREADS or deviations
            for other in self.inputs(key):
                if not absorbing:
                    observed[other[0]] = None
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        for node in observed:
            cancelling = find_cancelling(self.shapes, node)
            if cancelling is not None:
                self.settling[node] = cancelling


def takes_condition(node: Node, place: int) -> bool:
    """Whether an operand is used as a condition, not as a number."""
    return node.boolean if node.op == "spread" else place in node.operator.conditions


def find_cancelling(shapes: Shapes, node: Node) -> Cancelling | None:
    """The terms of a sum of statistics that can cancel; None for any other value."""
    if not node.operator.sums or node.level < Level.ROLLOUT or shapes.fused(node) or _is_deviation(node):
        return None
    values = node.domain.values
    if values is not None and Fraction(0) not in values:
        return None
    terms = [(t, sign) for t, sign in _terms(node) if t.constant != 0 and t.op != "missing"]
    rises = any((t.domain.hi if sign > 0 else -t.domain.lo) > 0 for t, sign in terms)
    falls = any((t.domain.lo if sign > 0 else -t.domain.hi) < 0 for t, sign in terms)
    if not (rises and falls) or len(terms) > MOST_SUMMANDS or all(is_exact(t) for t, _ in terms):
        return None
    nodes = tuple(dict.fromkeys(t for t, _ in terms))
    statistics = tuple(t for t in nodes if any(n.op in REDUCTIONS for n in walk([t])))
    if not any(not is_exact(t) for t in statistics):
        return None
    return Cancelling(statistics, tuple(t for t in nodes if t not in statistics))


def _terms(node: Node, sign: int = 1) -> list[tuple[Node, int]]:
    """The terms of a sum with their signs. A deviation from a mean is one term."""
    if not node.operator.sums or _is_deviation(node):
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
