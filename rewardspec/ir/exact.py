"""The exact value of a graph on one group of rollouts.

`eps` is 0 here: counts and verdicts are about the method without its rounding guard.

A value is a Fraction, a Surd, a Real, None where missing, or UNKNOWN where it depends on a comparison too close to
call. Conditions are then three-valued: UNKNOWN or true is true. Comparing an UNKNOWN raises Inexact, so no claim is
made about it by accident. A node of list level has for each rollout a tuple: one value for every item of its list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain, islice
from math import pi
from typing import Any

from rewardspec.ir.node import Node, evaluate, is_elementwise, walk
from rewardspec.ops.domain import Level, finest
from rewardspec.ops.effort import spend, weight
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operator import Pointwise, Reduction
from rewardspec.ops.operators import REDUCTIONS, SCANS
from rewardspec.ops.real import UNKNOWN, Number, Pool, TooClose, Unknown, real

Value = Number | float | Unknown | None
Values = Value | tuple[Value, ...]  # of one rollout: of list level, a value for each item


def items_of(value: Values) -> tuple[Value, ...]:
    """The values of a rollout's items; of a node that is not of list level, its one value."""
    return value if isinstance(value, tuple) else (value,)


def of_each(ask: Callable[[Any], Any], value: Values) -> Any:
    """`ask` of a value, or of each item."""
    return tuple(map(ask, value)) if isinstance(value, tuple) else ask(value)


def is_unknown(value: Values) -> bool:
    """Whether a value, or that of an item, is too close to call."""
    return any(v is UNKNOWN for v in items_of(value))


class GroupEvaluator:
    """Evaluates one node on one group after another, and caches what groups have in common.

    start: the nodes whose values a rollout gives; nothing below them is computed. Of each list that the root reads
    there is one at least, which says how long the lists are: `position`, if no other.
    given: `step`, `total_steps`, `progress` as numbers.
    floats: compute in floats, for estimates only.
    """

    def __init__(self, root: Node, start: Sequence[Node], given: Mapping[str, Fraction], floats: bool = False):
        self.root, self.start, self.given, self.floats = root, tuple(start), given, floats
        self.order = walk([root], known=self.start)
        self.measures = {node.level: node for node in self.start if node.level.listed}  # of the lengths of lists
        self.known: dict[tuple[object, ...], Any] = {}
        self.weights: dict[Node, int] = {}  # of the largest value that a node had
        self.pool = Pool()

    def __call__(self, rollouts: Sequence[tuple[Values, ...]], group: Mapping[str, Fraction | None]) -> list[Any]:
        """The root's value for every rollout, equal ones as one object. The group is also the whole batch.

        rollouts: the values of `start`, for each. group: columns of group and batch level.
        """
        return [of_each(self.pool.canonical, value) for value in self.values(rollouts, group)]

    def values(self, rollouts: Sequence[tuple[Values, ...]], group: Mapping[str, Fraction | None]) -> list[Any]:
        """As `__call__`, but equal values can be different objects."""
        size = len(rollouts)
        values: dict[Node, list[Any]] = {node: [r[i] for r in rollouts] for i, node in enumerate(self.start)}
        lengths = {level: [len(items) for items in values[node]] for level, node in self.measures.items()}
        for node in self.order:
            count = sum(lengths[node.level]) if node.level.listed else size
            spend(count * self.weights.get(node, 1))
            if node.op in ("column", "const", "missing", "given"):
                found = [self.leaf(node, group, size)] * count
            elif node.op == "position":
                found = [self.number(Fraction(k + 1)) for n in lengths[node.level] for k in range(n)]
            elif node.op in SCANS:
                found = [v for items in values[node.args[0]] for v in self.scan(node, items)]
            elif node.op in REDUCTIONS:
                level = finest(a.level for a in node.args)
                columns = [_at(level, a, values[a], lengths) for a in node.args]
                found = self.over_items(node, columns, lengths[level]) if level.listed else self.reduce(node, columns)
            else:
                found = self.elementwise(node, [_at(node.level, a, values[a], lengths) for a in node.args])
            values[node] = _nested(found, lengths[node.level]) if node.level.listed else found
        return values[self.root]

    def leaf(self, node: Node, group: Mapping[str, Fraction | None], size: int) -> Value:
        """The value of a node that does not depend on rollouts."""
        if node.op == "given":
            return self.take(node.attributes[0], size)
        return self.number(
            None if node.op == "missing" else node.constant if node.op == "const" else group[node.attributes[0]]
        )

    def number(self, value: Fraction | None) -> Value:
        return float(value) if self.floats and value is not None else value

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
        return self.number(value)

    def scan(self, node: Node, items: tuple[Any, ...]) -> Sequence[Any]:
        """A function of an ordered list, of the items of one rollout."""
        try:
            found = SCANS[node.op].exact(items, self.number(node.attributes[0]))
        except TooClose:
            found = [UNKNOWN] * len(items)
        self.weigh(node, *found)
        return [v if v is None or v is UNKNOWN else float(v) for v in found] if self.floats else found

    def elementwise(self, node: Node, columns: list[list[Any]]) -> list[Any]:
        result = []
        for row in zip(*columns, strict=True):
            if any(v is UNKNOWN for v in row):
                result.append(_undecided(node, row))
                continue
            key = (node.id, row)  # its hash is most of the work: looked up once
            value = self.known.get(key, self)
            if value is self:
                value = self.known[key] = self.apply(node, row)
                self.weigh(node, value)
            result.append(value)
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

    def over_items(self, node: Node, columns: list[list[Any]], lengths: list[int]) -> list[Any]:
        """A reduction of lists, whose columns have a value for each item: over each rollout, or over all items."""
        if node.attributes[0] is Level.ROLLOUT:
            items = iter(zip(*columns, strict=True))
            parts = [[[*column] for column in zip(*islice(items, n), strict=True)] for n in lengths]
        else:
            parts = [columns]
        found = [self.reduce(node, part) if part and part[0] else [] for part in parts]
        if node.level.listed:
            return [*chain.from_iterable(found)]
        each = [values[0] if values else self.of_none(node) for values in found]
        return each if node.attributes[0] is Level.ROLLOUT else each * len(lengths)

    def of_none(self, node: Node) -> Any:
        """A reduction of lists without items."""
        found = self.reduced(node, [], [])
        return float(found) if self.floats and found is not None else found

    def reduce(self, node: Node, columns: list[list[Any]]) -> list[Any]:
        """A value for each rollout, or item, from theirs."""
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
        return self.number(node.attributes[1])


def _at(level: Level, node: Node, column: list[Any], lengths: Mapping[Level, list[int]]) -> list[Any]:
    """The values of a node at every rollout, or at every item of a list."""
    if not level.listed:
        return column
    if node.level.listed:
        return [*chain.from_iterable(column)]
    return [value for value, n in zip(column, lengths[level], strict=True) for _ in range(n)]


def _nested(values: Iterable[Any], lengths: Sequence[int]) -> list[tuple[Any, ...]]:
    """The values of all items as a tuple for each rollout."""
    rest = iter(values)
    return [tuple(islice(rest, n)) for n in lengths]


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
