"""Rigorous bounds of a graph's values on many groups at once, in floats.

A `Box` bounds a value between two floats; every operation rounds outward, and a condition is 1, 0 or either. What a
box decides is certain. What it leaves open goes to exact arithmetic, one group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rewardspec.ir.exact import Value
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.enclosures import enclosure
from rewardspec.ops.exact import Surd
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.ops.real import Real
from rewardspec.prove.intervals import ARITHMETIC, MONOTONE, Flags, Floats, Interval, minus, over, plus, root, square

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """Bounds of values, one pair for each group and rollout (`[G, n]`, `[G, 1]` or `[1, 1]`).

    gone: the value may be missing. there: it may be present. same: ids of values, equal only if the values are; None
    if unknown.
    """

    lo: Floats
    hi: Floats
    gone: Flags
    there: Flags
    same: NDArray[np.int64] | None = None

    def __getitem__(self, places: NDArray[np.int64]) -> Box:
        """The boxes at these indices of the first axis."""
        same = None if self.same is None else self.same[places]
        return Box(self.lo[places], self.hi[places], self.gone[places], self.there[places], same)

    def reshape(self, groups: int, size: int) -> Box:
        """The same boxes, shaped [groups, size]."""
        shape = groups, size
        same = None if self.same is None else self.same.reshape(shape)
        lo, hi = self.lo.reshape(shape), self.hi.reshape(shape)
        return Box(lo, hi, self.gone.reshape(shape), self.there.reshape(shape), same)


def box(values: Sequence[Value], same: bool = False) -> Box:
    """Boxes around exact values, as arrays [N]. None is missing; UNKNOWN may be anything, or missing."""
    rows = [_ends(v) for v in values]
    lo, hi, gone, there = (np.array(column) for column in zip(*rows, strict=True))
    numbers: dict[Value, int] = {}
    ids = None
    if same and not any(g and t for _, _, g, t in rows):
        ids = np.array([numbers.setdefault(v, len(numbers)) for v in values])
    return Box(lo.astype(float), hi.astype(float), gone.astype(bool), there.astype(bool), ids)


def _ends(value: Value) -> tuple[float, float, bool, bool]:
    if value is None:
        return 0.0, 0.0, True, False
    if isinstance(value, Fraction):
        try:
            near = float(value)
        except OverflowError:
            return (1.7e308, math.inf, False, True) if value > 0 else (-math.inf, -1.7e308, False, True)
        if math.isinf(near):
            return (1.7e308, math.inf, False, True) if value > 0 else (-math.inf, -1.7e308, False, True)
        lo = near if Fraction(near) <= value else math.nextafter(near, -math.inf)
        hi = near if Fraction(near) >= value else math.nextafter(near, math.inf)
        return lo, hi, False, True
    if isinstance(value, Real | Surd):
        ball = enclosure(value, 100)
        if ball.is_finite():
            lo, hi = float(ball.lower()), float(ball.upper())
            return math.nextafter(lo, -math.inf), math.nextafter(hi, math.inf), False, True
        return -math.inf, math.inf, False, True
    return -math.inf, math.inf, True, True  # UNKNOWN


def evaluate(
    roots: Sequence[Node],
    start: Mapping[Node, Box],
    coarse: Mapping[str, Fraction | None],
    given: Callable[[str], Value],
    size: int,
) -> dict[Node, Box]:
    """Boxes of the roots on groups of `size`, from those of `start` ([G, size]). given: the exact value of a name."""
    values = dict(start)
    order = walk(roots, known=start)
    last = {a: at for at, node in enumerate(order) for a in node.args}
    with np.errstate(all="ignore"):
        for at, node in enumerate(order):
            if node.op == "column":
                values[node] = _one(coarse[node.attributes[0]])
            elif node.op == "const":
                values[node] = _one(node.constant)
            elif node.op == "missing":
                values[node] = _one(None)
            elif node.op == "given":
                values[node] = _one(given(node.attributes[0]))
            elif node.op == "copies":
                values[node] = _one(Fraction(1))
            elif node.op in REDUCTIONS:
                values[node] = _reduce(node, [values[a] for a in node.args], size)
            else:
                values[node] = _elementwise(node, [values[a] for a in node.args])
            for a in node.args:  # its last use
                if last.get(a) == at and a not in roots and a not in start:
                    values.pop(a, None)
    return {root: values[root] for root in roots}


def _one(value: Value) -> Box:
    return box([value]).reshape(1, 1)


# Nodes -------------------------------------------------------------------------------------------


def _elementwise(node: Node, args: list[Box]) -> Box:
    match node.op:
        case "required" | "spread":
            return args[0]
        case "present":
            return Box((~args[0].gone).astype(float), args[0].there.astype(float), *_always(args[0]))
        case "coalesce":
            x, other = args
            return Box(
                np.where(x.there, np.where(x.gone, np.minimum(x.lo, other.lo), x.lo), other.lo),
                np.where(x.there, np.where(x.gone, np.maximum(x.hi, other.hi), x.hi), other.hi),
                x.gone & other.gone,
                x.there | other.there,
            )
        case "if":
            return _choice(*args)
        case "sum_components":
            return _sum_components(args)
        case "and":
            lo, hi = [np.minimum(*(getattr(a, end) for a in args)) for end in ("lo", "hi")]
            return Box(lo, hi, *_always(*args))
        case "or":
            lo, hi = [np.maximum(*(getattr(a, end) for a in args)) for end in ("lo", "hi")]
            return Box(lo, hi, *_always(*args))
        case "not":
            return Box(1 - args[0].hi, 1 - args[0].lo, *_always(args[0]))
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return _comparison(node.op, *args)
    gone = _any_of([a.gone for a in args])
    there = _all_of([a.there for a in args])
    ends = [(a.lo, a.hi) for a in args]
    if node.op in ARITHMETIC:
        lo, hi = ARITHMETIC[node.op](*ends)
        if node.op == "/":
            gone = gone | ((ends[1][0] <= 0) & (ends[1][1] >= 0))
    elif node.op in MONOTONE:
        lo, hi = MONOTONE[node.op](ends[0])
        if node.op == "log":
            gone = gone | (ends[0][0] <= 0)
        if node.op == "sqrt":
            gone = gone | (ends[0][0] < 0)
    elif node.op == "comb":
        shape = np.broadcast_shapes(*(a.lo.shape for a in args))
        lo, hi, gone = np.zeros(shape), np.full(shape, np.inf), np.ones(shape, bool)
    elif node.op == "**" and node.args[1].constant == 2:
        lo, hi = square(ends[0])
    else:
        shape = np.broadcast_shapes(*(a.lo.shape for a in args))
        lo, hi = np.full(shape, -np.inf), np.full(shape, np.inf)
        gone = np.ones(shape, bool)
    return Box(lo, hi, gone, there)


def _always(*args: Box) -> tuple[Flags, Flags]:
    shape = np.broadcast_shapes(*(a.lo.shape for a in args))
    return np.zeros(shape, bool), np.ones(shape, bool)


def _any_of(flags: Sequence[Flags]) -> Flags:
    found = flags[0]
    for flag in flags[1:]:
        found = found | flag
    return found


def _all_of(flags: Sequence[Flags]) -> Flags:
    found = flags[0]
    for flag in flags[1:]:
        found = found & flag
    return found


def _choice(condition: Box, then: Box, otherwise: Box) -> Box:
    yes, no = condition.lo >= 1, condition.hi <= 0
    may_then, may_other = ~no, ~yes
    lo = np.minimum(
        np.where(may_then & then.there, then.lo, np.inf), _open(may_other & otherwise.there, otherwise.lo, 1)
    )
    hi = np.maximum(
        np.where(may_then & then.there, then.hi, -np.inf), _open(may_other & otherwise.there, otherwise.hi, -1)
    )
    gone = (may_then & then.gone) | (may_other & otherwise.gone)
    there = (may_then & then.there) | (may_other & otherwise.there)
    return Box(np.where(there, lo, 0.0), np.where(there, hi, 0.0), gone, there)


def _open(taken: Flags, x: Floats, direction: int) -> Floats:
    return np.where(taken, x, direction * np.inf)


def _sum_components(args: list[Box]) -> Box:
    total = np.zeros((1, 1)), np.zeros((1, 1))
    for a in args:
        ends = (
            np.where(a.there, np.where(a.gone, np.minimum(a.lo, 0), a.lo), 0.0),
            np.where(a.there, np.where(a.gone, np.maximum(a.hi, 0), a.hi), 0.0),
        )
        total = plus(total, ends)
    return Box(*total, _all_of([a.gone for a in args]), _any_of([a.there for a in args]))


def _comparison(op: str, a: Box, b: Box) -> Box:
    if op in (">", ">="):
        a, b, op = b, a, {">": "<", ">=": "<="}[op]
    if op == "<":
        sure, possible = a.hi < b.lo, a.lo < b.hi
    elif op == "<=":
        sure, possible = a.hi <= b.lo, a.lo <= b.hi
    else:
        sure = (a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo)
        possible = (a.lo <= b.hi) & (b.lo <= a.hi)
        if op == "!=":
            sure, possible = ~possible, ~sure
    sure, possible = sure & ~a.gone & ~b.gone, possible & a.there & b.there
    return Box(sure.astype(float), possible.astype(float), *_always(a, b))


def _reduce(node: Node, args: list[Box], size: int) -> Box:
    x, where, *by = args
    shape = np.broadcast_shapes(x.lo.shape, where.lo.shape, (1, size))
    lo, hi = np.broadcast_to(x.lo, shape), np.broadcast_to(x.hi, shape)
    sure = np.broadcast_to((where.lo >= 1) & ~where.gone & ~x.gone, shape)
    maybe = np.broadcast_to((where.hi >= 1) & x.there, shape)
    if by or (node.attributes[0] is Level.BATCH and node.args[0].level is Level.GROUP):
        return _anything(shape)
    decided = (sure == maybe).all(1, keepdims=True)
    count = sure.sum(1, keepdims=True)
    none, some = ~_any(sure), _any(maybe)
    yes = (np.zeros_like(none), np.ones_like(none))

    def least(x: Floats, taken: Flags) -> Floats:
        found: Floats = np.where(taken, x, np.inf).min(1, keepdims=True)
        return found

    def most(x: Floats, taken: Flags) -> Floats:
        found: Floats = np.where(taken, x, -np.inf).max(1, keepdims=True)
        return found

    def total(ends: Interval, taken: Flags) -> Interval:
        found = np.zeros((len(lo), 1)), np.zeros((len(lo), 1))
        for i in range(size):
            part = taken[:, i : i + 1]
            found = plus(
                found, (np.where(part, ends[0][:, i : i + 1], 0.0), np.where(part, ends[1][:, i : i + 1], 0.0))
            )
        return found

    match node.op:
        case "count":
            return Box(count.astype(float), maybe.sum(1, keepdims=True).astype(float), *yes)
        case "any":
            return Box(_any(sure & (lo >= 1)).astype(float), most(hi, maybe).clip(0, 1), *yes)
        case "all":
            return Box(least(lo, maybe).clip(0, 1), (~_any(sure & (hi <= 0))).astype(float), *yes)
        case "min":
            return Box(*_held(least(lo, maybe), least(hi, sure), some), none, some)
        case "max":
            return Box(*_held(most(lo, sure), most(hi, maybe), some), none, some)
        case "kth":
            k = int(node.attributes[1])
            enough = count >= k

            def kth(x: Floats, taken: Flags) -> Floats:
                return np.sort(np.where(taken, x, -np.inf), 1)[:, size - k : size - k + 1]

            if k > size:
                zero = np.zeros(count.shape)
                return Box(zero, zero, zero == 0, zero != 0)
            low = np.where(enough, kth(lo, sure), least(lo, maybe))  # a further value can only raise it
            there = maybe.sum(1, keepdims=True) >= k
            return Box(*_held(low, kth(hi, maybe), there), ~enough, there)
        case "sum":
            ends = (np.where(sure, lo, np.minimum(lo, 0)), np.where(sure, hi, np.maximum(hi, 0)))
            return Box(*total(ends, maybe), *yes)
        case "mean" | "std" | "var":
            bounds = least(lo, maybe), most(hi, maybe)
            known = total((lo, hi), sure)
            n = np.maximum(count, 1).astype(float)
            mean = over(known, (n, n))
            mean = np.maximum(mean[0], bounds[0]), np.minimum(mean[1], bounds[1])
            alike = _alike(x, sure, shape)
            if node.op == "mean":
                low, high = np.where(decided, mean[0], bounds[0]), np.where(decided, mean[1], bounds[1])
                return Box(*_held(low, high, some), none, some)
            left = n - float(node.attributes[1])
            squares = total(square(minus((lo, hi), mean)), sure)
            found = over(squares, (left, left))
            found = found if node.op == "var" else root(found)
            zero = decided & ((count < 2) | (left <= 0) | alike)
            low = np.where(zero | ~decided, 0.0, np.maximum(found[0], 0))
            high = np.where(zero, 0.0, np.where(decided, found[1], np.inf))
            return Box(low, high, *yes)
    return _anything(shape)


def _any(flags: Flags) -> Flags:
    """Whether any of a group's flags is set, [G, 1]."""
    found: Flags = np.any(flags, axis=1, keepdims=True)
    return found


def _held(lo: Floats, hi: Floats, some: Flags) -> Interval:
    """The ends where there is a value, else 0."""
    return np.where(some, lo, 0.0), np.where(some, hi, 0.0)


def _alike(x: Box, taken: Flags, shape: Shape) -> Flags:
    """Whether the values that are taken are known to be equal, [G, 1]."""
    point = (x.lo == x.hi).all() if x.same is None else True
    if not point:
        return np.zeros((shape[0], 1), bool)
    ids = np.broadcast_to(x.lo if x.same is None else x.same.astype(float), shape)
    least, most = np.where(taken, ids, np.inf).min(1), np.where(taken, ids, -np.inf).max(1)
    alike: Flags = least == most
    return alike[:, None]


def _anything(shape: Shape) -> Box:
    return Box(np.full(shape, -np.inf), np.full(shape, np.inf), np.ones(shape, bool), np.ones(shape, bool))
