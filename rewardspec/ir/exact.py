"""The exact value of a graph on one group of rollouts.

`eps` is 0 here: counts and verdicts are about the method without its rounding guard.

A value is a Fraction, a Surd, a Real, None where missing, or UNKNOWN where it depends on a comparison too close to
call. Conditions are then three-valued: UNKNOWN or true is true. Comparing an UNKNOWN raises Inexact, so no claim is
made about it by accident.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import pi
from typing import Any

from rewardspec.ir.node import Node, evaluate, is_elementwise, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import spend, weight
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operator import Pointwise, Reduction
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.ops.real import UNKNOWN, Number, Pool, TooClose, Unknown, real

Value = Number | float | Unknown | None


class GroupEvaluator:
    """Evaluates one node on one group after another, and caches what groups have in common.

    start: the nodes whose values a rollout gives; nothing below them is computed.
    given: `step`, `total_steps`, `progress` as numbers.
    floats: compute in floats, for estimates only.
    """

    def __init__(self, root: Node, start: Sequence[Node], given: Mapping[str, Fraction], floats: bool = False):
        self.root, self.start, self.given, self.floats = root, tuple(start), given, floats
        self.order = walk([root], known=self.start)
        self.known: dict[tuple[object, ...], Any] = {}
        self.weights: dict[Node, int] = {}  # of the largest value that a node had
        self.pool = Pool()

    def __call__(self, rollouts: Sequence[tuple[Value, ...]], group: Mapping[str, Fraction | None]) -> list[Any]:
        """The root's value for every rollout, equal ones as one object. The group is also the whole batch.

        rollouts: the values of `start`, for each. group: columns of group and batch level.
        """
        return [self.pool.canonical(value) for value in self.values(rollouts, group)]

    def values(self, rollouts: Sequence[tuple[Value, ...]], group: Mapping[str, Fraction | None]) -> list[Any]:
        """As `__call__`, but equal values can be different objects."""
        size = len(rollouts)
        values: dict[Node, list[Any]] = {node: [r[i] for r in rollouts] for i, node in enumerate(self.start)}
        for node in self.order:
            spend(size * self.weights.get(node, 1))
            if node.op == "column":
                value = group[node.attributes[0]]
                values[node] = [float(value) if self.floats and value is not None else value] * size
            elif node.op == "const":
                constant = node.attributes[0]
                values[node] = [float(constant) if self.floats else constant] * size
            elif node.op == "missing":
                values[node] = [None] * size
            elif node.op == "given":
                values[node] = [self.take(node.attributes[0], size)] * size
            elif node.op in REDUCTIONS:
                values[node] = self.reduce(node, [values[a] for a in node.args])
            else:
                values[node] = self.elementwise(node, [values[a] for a in node.args])
        return values[self.root]

    def take(self, name: str, size: int) -> Value:
        if name in ("group_size", "batch_size"):
            value = Fraction(size)
        elif name == "eps":
            value = Fraction(0)
        elif name == "pi":
            return pi if self.floats else real("pi")
        elif name in self.given:
            value = self.given[name]
        else:
            raise Inexact(f"`{name}` has no exact value")
        return float(value) if self.floats else value

    def elementwise(self, node: Node, columns: list[list[Any]]) -> list[Any]:
        result = []
        for row in zip(*columns, strict=True):
            if any(v is UNKNOWN for v in row):
                result.append(_undecided(node, row))
                continue
            key = (node.id, row)
            if key not in self.known:
                self.known[key] = self.apply(node, row)
                self.weigh(node, self.known[key])
            result.append(self.known[key])
        return result

    def apply(self, node: Node, row: tuple[Any, ...]) -> Any:
        if node.op == "required":
            return row[0]
        if node.op == "copies":
            return Fraction(1)  # a group that is the whole batch leaves no place to refill
        assert is_elementwise(node), f"no exact rule for {node!r}"
        try:
            value = evaluate(node, list(row))
        except TooClose:
            return UNKNOWN
        except (ZeroDivisionError, OverflowError, ValueError):
            return None  # undefined: an error in a run that selects it
        return float(value) if self.floats and value is not None else value

    def reduce(self, node: Node, columns: list[list[Any]]) -> list[Any]:
        x, where, *by = columns
        labels = by[0] if by else [None] * len(x)
        try:
            kinds = [[i for i in range(len(x)) if labels[i] == label] for label in dict.fromkeys(labels)]
        except TooClose:
            return [UNKNOWN] * len(x)
        result: list[Any] = [None] * len(x)
        coarse = node.attributes[0] is Level.BATCH and node.args[0].level is Level.GROUP
        for rows in kinds:
            there = [i for i in rows if x[i] is not None and (where[i] is UNKNOWN or where[i] == 1)]
            there = there[:1] if coarse else there  # a group's value counts once
            found = self.reduced(node, [x[i] for i in there], [where[i] for i in there])
            if REDUCTIONS[node.op].keeps_level:
                found = found if isinstance(found, list) else [found] * len(there)
                for i, value in zip(there, found, strict=True):
                    result[i] = float(value) if self.floats else value
            else:
                for i in rows:
                    result[i] = float(found) if self.floats and found is not None else found
        return result

    def reduced(self, node: Node, values: list[Any], where: list[Any]) -> Any:
        """A reduction of the values that are selected, or may be."""
        if any(v is UNKNOWN for v in (*values, *where)):
            return _undecided_reduction(REDUCTIONS[node.op], values, where)
        key = (node.id, tuple(values))
        if key not in self.known:
            try:
                self.known[key] = REDUCTIONS[node.op].exact(values, self.parameter(node))
            except TooClose:
                self.known[key] = UNKNOWN
            found = self.known[key]
            self.weigh(node, *(found if isinstance(found, list) else [found]))
        return self.known[key]

    def weigh(self, node: Node, *found: Value) -> None:
        """Spend what the values of a node cost."""
        heaviest = max(map(weight, found), default=1)
        spend(4 * heaviest)
        if heaviest > self.weights.get(node, 1):
            self.weights[node] = heaviest

    def parameter(self, node: Node) -> Any:
        parameter = node.attributes[1]
        return float(parameter) if self.floats and parameter is not None else parameter


def _undecided(node: Node, row: tuple[Any, ...]) -> Any:
    """An elementwise node's value where an operand is UNKNOWN."""
    op = node.operator
    if isinstance(op, Pointwise) and op.undecided is not None:
        return op.undecided(row)
    if any(v is None for v in row):
        return Fraction(0) if node.boolean else None
    return UNKNOWN


def _undecided_reduction(op: Reduction, values: list[Any], where: list[Any]) -> Any:
    """A reduction where a value is UNKNOWN, or whether it takes part."""
    if op.decides is not None:
        if any(w is not UNKNOWN and v is not UNKNOWN and v == op.decides for v, w in zip(values, where, strict=True)):
            return op.decides
        if all(v is not UNKNOWN and v != op.decides for v in values):
            return 1 - op.decides
    return UNKNOWN
