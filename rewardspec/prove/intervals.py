"""Interval arithmetic on arrays of floats, every end rounded outward.

An interval is a pair of arrays, its ends. A result contains the exact result for all numbers of the operands.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Interval = tuple[Floats, Floats]

LIBRARY_ULPS = 8  # more than the largest error of numpy's exp, log and tanh


def _down(x: Floats, exact: Flags | bool = False) -> Floats:
    return np.where(exact, x, np.nextafter(x, -np.inf))


def _up(x: Floats, exact: Flags | bool = False) -> Floats:
    return np.where(exact, x, np.nextafter(x, np.inf))


def _short(x: Floats) -> Flags:
    """Whether the floats are so short that a product of two of them is exact."""
    short: Flags = (x.astype(np.float32) == x) & (np.abs(x) < 1e15) & ((np.abs(x) > 1e-15) | (x == 0))
    return short


def _fixed(lo: Floats, hi: Floats) -> Interval:
    """The interval with infinite ends where they are NaN, as infinity minus infinity is."""
    return np.where(np.isnan(lo), -np.inf, lo), np.where(np.isnan(hi), np.inf, hi)


def plus(a: Interval, b: Interval) -> Interval:
    (alo, ahi), (blo, bhi) = a, b

    def end(x: Floats, y: Floats, away: float) -> Floats:
        s = x + y
        part = s - x
        error = (x - (s - part)) + (y - part)
        return np.where(error == 0, s, np.nextafter(s, away))

    return _fixed(end(alo, blo, -np.inf), end(ahi, bhi, np.inf))


def minus(a: Interval, b: Interval) -> Interval:
    return plus(a, (-b[1], -b[0]))


def _times(a: Interval, b: Interval) -> Interval:
    (alo, ahi), (blo, bhi) = a, b
    short = _short(alo) & _short(ahi) & _short(blo) & _short(bhi)
    corners = [x * y for x in (alo, ahi) for y in (blo, bhi)]
    corners = [np.where(np.isnan(c), 0.0, c) for c in corners]  # 0 times infinity
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return _down(lo, short | ((lo == 0) & _zero(a, b))), _up(hi, short | ((hi == 0) & _zero(a, b)))


def _zero(a: Interval, b: Interval) -> Flags:
    zero: Flags = ((a[0] == 0) & (a[1] == 0)) | ((b[0] == 0) & (b[1] == 0))
    return zero


def over(a: Interval, b: Interval) -> Interval:
    (alo, ahi), (blo, bhi) = a, b
    corners = [x / y for x in (alo, ahi) for y in (blo, bhi)]
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    point = (alo == ahi) & (blo == bhi) & _short(lo) & _short(blo) & (lo * blo == alo)
    bad = ((blo <= 0) & (bhi >= 0)) | np.isnan(lo) | np.isnan(hi)
    return np.where(bad, -np.inf, _down(lo, point)), np.where(bad, np.inf, _up(hi, point))


def root(a: Interval) -> Interval:
    lo, hi = np.sqrt(np.maximum(a[0], 0)), np.sqrt(np.maximum(a[1], 0))
    low = _down(lo, _short(lo) & (lo * lo == a[0]) | (lo == 0))
    return np.maximum(low, 0), _up(hi, _short(hi) & (hi * hi == a[1]))


def square(a: Interval) -> Interval:
    lo, hi = _times(a, a)
    crosses = (a[0] <= 0) & (a[1] >= 0)
    return np.where(crosses, 0.0, np.maximum(lo, 0)), hi


def _library(
    function: Callable[[Floats], Floats], lowest: float = -np.inf, highest: float = np.inf
) -> Callable[[Interval], Interval]:
    def rule(a: Interval) -> Interval:
        ends = [function(a[0]), function(a[1])]
        reach = [LIBRARY_ULPS * np.spacing(np.abs(e)) for e in ends]
        lo, hi = np.maximum(ends[0] - reach[0], lowest), np.minimum(ends[1] + reach[1], highest)
        return _fixed(lo, hi)

    return rule


MONOTONE: dict[str, Callable[[Interval], Interval]] = {
    "exp": _library(np.exp, 0.0),
    "tanh": _library(np.tanh, -1.0, 1.0),
    "sigmoid": _library(lambda x: 1 / (1 + np.exp(-x)), 0.0, 1.0),
    "log": _library(np.log),
    "sqrt": root,
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
ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval]] = {
    "+": plus,
    "-": minus,
    "*": _times,
    "/": over,
    "minimum": lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    "maximum": lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
}
