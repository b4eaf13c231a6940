"""Enclosures of a graph's values on many groups at once: what floats can decide, decided rigorously.

A value is a `Box`: it lies between two floats, every operation rounds outward, and a condition is 1, 0 or
either. So what a box says is so; what it leaves open goes to exact arithmetic, one group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rewardspec.ir.graph import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.real import Real, enclosure
from rewardspec.ops.reductions import REDUCTIONS

LIBRARY_ULPS = 8  # what numpy's exp, log and tanh may be off by, and more


@dataclass(frozen=True)
class Box:
    """Floats that values lie between, one for every group and rollout (`[G, n]`, `[G, 1]` or `[1, 1]`).

    gone: the value may be missing. there: it may be present. same: numbers that are alike only for equal values,
    where that is known.
    """

    lo: np.ndarray
    hi: np.ndarray
    gone: np.ndarray
    there: np.ndarray
    same: np.ndarray | None = None


def box(values: Sequence, same: bool = False) -> Box:
    """Boxes around exact values, as arrays [N]; None is missing, and so may be what is UNKNOWN."""
    rows = [_ends(v) for v in values]
    lo, hi, gone, there = (np.array(column) for column in zip(*rows, strict=True))
    numbers: dict = {}
    ids = None
    if same and not any(g and t for _, _, g, t in rows):
        ids = np.array([numbers.setdefault(v, len(numbers)) for v in values])
    return Box(lo.astype(float), hi.astype(float), gone.astype(bool), there.astype(bool), ids)


def _ends(value) -> tuple[float, float, bool, bool]:
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
    if isinstance(value, Real) or hasattr(value, "terms"):
        ball = enclosure(value, 100)
        if ball.is_finite():
            lo, hi = float(ball.lower()), float(ball.upper())
            return math.nextafter(lo, -math.inf), math.nextafter(hi, math.inf), False, True
        return -math.inf, math.inf, False, True
    return -math.inf, math.inf, True, True  # UNKNOWN


def evaluate(
    roots: Sequence[Node], start: Mapping[Node, Box], coarse: Mapping[str, Fraction | None], given: Callable, size: int
) -> dict[Node, Box]:
    """Boxes of the roots on groups of `size`, from those of `start` ([G, size]). given: a name's exact value."""
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
            for a in node.args:  # nobody needs it any more
                if last.get(a) == at and a not in roots and a not in start:
                    values.pop(a, None)
    return {root: values[root] for root in roots}


def _one(value) -> Box:
    found = box([value])
    return Box(*(a.reshape(1, 1) for a in (found.lo, found.hi, found.gone, found.there)))


# Rounding outward --------------------------------------------------------------------------------


def _down(x, exact=False):
    return np.where(exact, x, np.nextafter(x, -np.inf))


def _up(x, exact=False):
    return np.where(exact, x, np.nextafter(x, np.inf))


def _short(x):
    """Whether the product of two such floats is one."""
    return (x.astype(np.float32) == x) & (np.abs(x) < 1e15) & ((np.abs(x) > 1e-15) | (x == 0))


def _fixed(lo, hi):
    """What is no number, as the infinity minus itself, can be anything."""
    return np.where(np.isnan(lo), -np.inf, lo), np.where(np.isnan(hi), np.inf, hi)


def _plus(a, b):
    (alo, ahi), (blo, bhi) = a, b

    def end(x, y, away):
        s = x + y
        part = s - x
        error = (x - (s - part)) + (y - part)
        return np.where(error == 0, s, np.nextafter(s, away))

    return _fixed(end(alo, blo, -np.inf), end(ahi, bhi, np.inf))


def _minus(a, b):
    return _plus(a, (-b[1], -b[0]))


def _times(a, b):
    (alo, ahi), (blo, bhi) = a, b
    short = _short(alo) & _short(ahi) & _short(blo) & _short(bhi)
    corners = [x * y for x in (alo, ahi) for y in (blo, bhi)]
    corners = [np.where(np.isnan(c), 0.0, c) for c in corners]  # 0 times what has no end
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return _down(lo, short | ((lo == 0) & _zero(a, b))), _up(hi, short | ((hi == 0) & _zero(a, b)))


def _zero(a, b):
    return ((a[0] == 0) & (a[1] == 0)) | ((b[0] == 0) & (b[1] == 0))


def _over(a, b):
    (alo, ahi), (blo, bhi) = a, b
    corners = [x / y for x in (alo, ahi) for y in (blo, bhi)]
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    point = (alo == ahi) & (blo == bhi) & _short(lo) & _short(blo) & (lo * blo == alo)
    bad = ((blo <= 0) & (bhi >= 0)) | np.isnan(lo) | np.isnan(hi)
    return np.where(bad, -np.inf, _down(lo, point)), np.where(bad, np.inf, _up(hi, point))


def _root(a):
    lo, hi = np.sqrt(np.maximum(a[0], 0)), np.sqrt(np.maximum(a[1], 0))
    low = _down(lo, _short(lo) & (lo * lo == a[0]) | (lo == 0))
    return np.maximum(low, 0), _up(hi, _short(hi) & (hi * hi == a[1]))


def _square(a):
    lo, hi = _times(a, a)
    crosses = (a[0] <= 0) & (a[1] >= 0)
    return np.where(crosses, 0.0, np.maximum(lo, 0)), hi


def _library(function, lowest=-np.inf, highest=np.inf):
    def rule(a):
        ends = [function(a[0]), function(a[1])]
        reach = [LIBRARY_ULPS * np.spacing(np.abs(e)) for e in ends]
        lo, hi = np.maximum(ends[0] - reach[0], lowest), np.minimum(ends[1] + reach[1], highest)
        return _fixed(lo, hi)

    return rule


_MONOTONE = {
    "exp": _library(np.exp, 0.0),
    "tanh": _library(np.tanh, -1.0, 1.0),
    "sigmoid": _library(lambda x: 1 / (1 + np.exp(-x)), 0.0, 1.0),
    "log": _library(np.log),
    "sqrt": _root,
    "floor": lambda a: (np.floor(a[0]), np.floor(a[1])),
    "round": lambda a: (np.rint(a[0]), np.rint(a[1])),
    "sign": lambda a: (np.sign(a[0]), np.sign(a[1])),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (
        np.where((a[0] <= 0) & (a[1] >= 0), 0.0, np.minimum(np.abs(a[0]), np.abs(a[1]))),
        np.maximum(np.abs(a[0]), np.abs(a[1])),
    ),
    "cos": lambda a: (np.full_like(a[0], -1.0), np.full_like(a[0], 1.0)),
}
_ARITHMETIC = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "/": _over,
    "minimum": lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    "maximum": lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
}


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
    if node.op in _ARITHMETIC:
        lo, hi = _ARITHMETIC[node.op](*ends)
        if node.op == "/":
            gone = gone | ((ends[1][0] <= 0) & (ends[1][1] >= 0))
    elif node.op in _MONOTONE:
        lo, hi = _MONOTONE[node.op](ends[0])
        if node.op == "log":
            gone = gone | (ends[0][0] <= 0)
        if node.op == "sqrt":
            gone = gone | (ends[0][0] < 0)
    elif node.op == "**" and node.args[1].constant == 2:
        lo, hi = _square(ends[0])
    else:
        shape = np.broadcast_shapes(*(a.lo.shape for a in args))
        lo, hi = np.full(shape, -np.inf), np.full(shape, np.inf)
        gone = np.ones(shape, bool)
    return Box(lo, hi, gone, there)


def _always(*args: Box) -> tuple[np.ndarray, np.ndarray]:
    shape = np.broadcast_shapes(*(a.lo.shape for a in args))
    return np.zeros(shape, bool), np.ones(shape, bool)


def _any_of(flags):
    found = flags[0]
    for flag in flags[1:]:
        found = found | flag
    return found


def _all_of(flags):
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


def _open(taken, x, direction):
    return np.where(taken, x, direction * np.inf)


def _sum_components(args: list[Box]) -> Box:
    total = None
    for a in args:
        ends = (
            np.where(a.there, np.where(a.gone, np.minimum(a.lo, 0), a.lo), 0.0),
            np.where(a.there, np.where(a.gone, np.maximum(a.hi, 0), a.hi), 0.0),
        )
        total = ends if total is None else _plus(total, ends)
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
    none, some = ~sure.any(1, keepdims=True), maybe.any(1, keepdims=True)
    yes = (np.zeros_like(none), np.ones_like(none))

    def least(x, taken):
        return np.where(taken, x, np.inf).min(1, keepdims=True)

    def most(x, taken):
        return np.where(taken, x, -np.inf).max(1, keepdims=True)

    def total(ends, taken):
        found = (np.zeros((len(lo), 1)), np.zeros((len(lo), 1)))
        for i in range(size):
            part = taken[:, i : i + 1]
            found = _plus(
                found, (np.where(part, ends[0][:, i : i + 1], 0.0), np.where(part, ends[1][:, i : i + 1], 0.0))
            )
        return found

    match node.op:
        case "count":
            return Box(count.astype(float), maybe.sum(1, keepdims=True).astype(float), *yes)
        case "any":
            return Box((sure & (lo >= 1)).any(1, keepdims=True).astype(float), most(hi, maybe).clip(0, 1), *yes)
        case "all":
            return Box(least(lo, maybe).clip(0, 1), 1.0 - (sure & (hi <= 0)).any(1, keepdims=True), *yes)
        case "min":
            return Box(*_held(least(lo, maybe), least(hi, sure), some), none, some)
        case "max":
            return Box(*_held(most(lo, sure), most(hi, maybe), some), none, some)
        case "sum":
            ends = (np.where(sure, lo, np.minimum(lo, 0)), np.where(sure, hi, np.maximum(hi, 0)))
            return Box(*total(ends, maybe), *yes)
        case "mean" | "std" | "var":
            bounds = least(lo, maybe), most(hi, maybe)
            known = total((lo, hi), sure)
            n = np.maximum(count, 1).astype(float)
            mean = _over(known, (n, n))
            mean = np.maximum(mean[0], bounds[0]), np.minimum(mean[1], bounds[1])
            alike = _alike(x, sure, shape)
            if node.op == "mean":
                low, high = np.where(decided, mean[0], bounds[0]), np.where(decided, mean[1], bounds[1])
                return Box(*_held(low, high, some), none, some)
            left = n - float(node.attributes[1])
            squares = total(_square(_minus((lo, hi), mean)), sure)
            found = _over(squares, (left, left))
            found = found if node.op == "var" else _root(found)
            zero = decided & ((count < 2) | (left <= 0) | alike)
            low = np.where(zero | ~decided, 0.0, np.maximum(found[0], 0))
            high = np.where(zero, 0.0, np.where(decided, found[1], np.inf))
            return Box(low, high, *yes)
    return _anything(shape)


def _held(lo, hi, some):
    """The ends where there is a value, 0 where there is none."""
    return np.where(some, lo, 0.0), np.where(some, hi, 0.0)


def _alike(x: Box, taken, shape):
    """Whether the values that take part are known to be equal."""
    point = (x.lo == x.hi).all() if x.same is None else True
    if not point:
        return np.zeros((shape[0], 1), bool)
    ids = np.broadcast_to(x.lo if x.same is None else x.same.astype(float), shape)
    return np.where(taken, ids, np.inf).min(1, keepdims=True) == np.where(taken, ids, -np.inf).max(1, keepdims=True)


def _anything(shape) -> Box:
    return Box(np.full(shape, -np.inf), np.full(shape, np.inf), np.ones(shape, bool), np.ones(shape, bool))
