"""The exact value of a graph on one group of rollouts.

Every eps is read as 0, so that what is counted or decided is the method, not its rounding guard.
A value is a Fraction, a Surd, None where missing, or, once something was not exact, a float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from rewardspec.ir.graph import Node, evaluate, is_elementwise, walk
from rewardspec.ops.exact import Inexact
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.types import Level


class GroupEvaluator:
    """Evaluates one node on one group after another, keeping what groups have in common.

    start: the nodes whose values a rollout comes with; nothing that only they need is computed.
    given: `step`, `total_steps`, `progress` as numbers.
    floats: compute in floats what has no exact value; without it, `Inexact` is raised.
    """

    def __init__(self, root: Node, start: Sequence[Node], given: Mapping[str, Fraction], floats: bool = False):
        self.root, self.start, self.given, self.floats = root, tuple(start), given, floats
        self.order = walk([root], known=self.start)
        self.known: dict[tuple, object] = {}

    def __call__(self, rollouts: Sequence[tuple], group: Mapping[str, Fraction]) -> list:
        """The root's value for every rollout. The group is taken for the whole batch, too.

        rollouts: the values of `start`, for each. group: columns of group and batch level.
        """
        size = len(rollouts)
        values: dict[Node, list] = {node: [r[i] for r in rollouts] for i, node in enumerate(self.start)}
        for node in self.order:
            if node.op == "column":
                value = group[node.attributes[0]]
                values[node] = [float(value) if self.floats else value] * size
            elif node.op == "const":
                values[node] = [float(node.constant) if self.floats else node.constant] * size
            elif node.op == "missing":
                values[node] = [None] * size
            elif node.op == "given":
                values[node] = [self.take(node.attributes[0], size)] * size
            elif node.op in REDUCTIONS:
                values[node] = self.reduce(node, [values[a] for a in node.args])
            else:
                values[node] = self.elementwise(node, [values[a] for a in node.args])
        return values[self.root]

    def take(self, name: str, size: int):
        if name in ("group_size", "batch_size"):
            value = Fraction(size)
        elif name == "eps":
            value = Fraction(0)
        elif name in self.given:
            value = self.given[name]
        else:
            raise Inexact(f"`{name}` has no exact value")
        return float(value) if self.floats else value

    def elementwise(self, node: Node, columns: list[list]) -> list:
        result = []
        for row in zip(*columns, strict=True):
            key = (node.id, row)
            if key not in self.known:
                self.known[key] = self.apply(node, row)
            result.append(self.known[key])
        return result

    def apply(self, node: Node, row: tuple):
        if node.op == "required":
            return row[0]
        if node.op == "copies":
            return Fraction(1)  # a group that is the whole batch leaves no place to fill
        assert is_elementwise(node), f"no exact rule for {node!r}"
        try:
            value = evaluate(node, list(row))
        except (ZeroDivisionError, OverflowError, ValueError):
            return None  # undefined: whatever selects it is an error when it runs
        return float(value) if self.floats and value is not None else value

    def reduce(self, node: Node, columns: list[list]) -> list:
        x, where, *by = columns
        labels = by[0] if by else [None] * len(x)
        result: list = [None] * len(x)
        coarse = node.attributes[0] is Level.BATCH and node.args[0].level is Level.GROUP
        for label in dict.fromkeys(labels):
            rows = [i for i in range(len(x)) if labels[i] == label]
            there = [i for i in rows if x[i] is not None and where[i] == 1]
            there = there[:1] if coarse else there  # a group's value counts once
            key = (node.id, tuple(x[i] for i in there))
            if key not in self.known:
                self.known[key] = REDUCTIONS[node.op].exact([x[i] for i in there], self.parameter(node))
            found = self.known[key]
            if REDUCTIONS[node.op].keeps_level:
                for i, value in zip(there, found, strict=True):
                    result[i] = float(value) if self.floats else value
            else:
                for i in rows:
                    result[i] = float(found) if self.floats and found is not None else found
        return result

    def parameter(self, node: Node):
        parameter = node.attributes[1]
        return float(parameter) if self.floats and parameter is not None else parameter
