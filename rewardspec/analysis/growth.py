"""All sums of vectors of parts, the order of rollouts ignored, without trying all combinations of rollouts.

A part gives the vectors that it can add to a group, each up to order. Two parts are added by pairing
the rollouts of one with those of the other in every way that differs. Sets of sums grow part by part,
and equal sums are merged on the way, so what is kept is never more than what is asked for.

Values are kept once and go by number; adding is looked up. So whatever the values are, exact numbers
stay exact, and two are one only if they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MOST_SUMS = 3_000_000  # vectors kept at once
_ROWS = 400_000  # pairings worked on at once


class TooMany(Exception):
    """More vectors than are kept at once."""


@dataclass(frozen=True)
class Vectors:
    """Vectors up to order: `rows` [M, G] holds numbers of `values`, each row sorted, no two alike.

    mass: [M], the probability of each. shares of a vector that comes from several parts are not kept.
    """

    values: list
    rows: np.ndarray
    mass: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


def vectors(found: Iterable[tuple[Sequence, float]]) -> Vectors:
    """Vectors from lists of values and their probabilities; those alike up to order are one."""
    number: dict = {}
    mass: dict[tuple, float] = {}
    for values, weight in found:
        row = tuple(sorted(number.setdefault(v, len(number)) for v in values))
        mass[row] = mass.get(row, 0.0) + weight
    return Vectors(list(number), np.array(list(mass), dtype=np.int64), np.array(list(mass.values())))


def add(a: Vectors, b: Vectors, progress: Callable[[int], None] | None = None) -> Vectors:
    """Every sum of a vector of `a` and one of `b`, with its probability if the two are independent.

    progress: called with the number of sums known so far. Raises TooMany.
    """
    sums: dict = {}
    table = np.array([[sums.setdefault(x + y, len(sums)) for y in b.values] for x in a.values], dtype=np.int64)
    size = a.rows.shape[1]
    counts = np.stack([(b.rows == i).sum(1) for i in range(len(b.values))], 1).astype(np.int8)
    logs = np.concatenate([[0.0], np.log(np.arange(1, size + 1)).cumsum()])  # of factorials
    within_b = logs[counts].sum(1)
    step = max(1, _ROWS // (len(b) * 4))
    known: tuple[np.ndarray, np.ndarray] | None = None
    for start in range(0, len(a), step):
        rows, mass = a.rows[start : start + step], a.mass[start : start + step]
        r, v, chosen = _pairings(rows, counts)
        pairs = rows[r] * len(b.values) + chosen
        weight = (
            mass[r] * b.mass[v] * np.exp(_run_logs(rows, logs)[r] + within_b[v] - logs[size] - _run_logs(pairs, logs))
        )
        found = np.sort(table[rows[r], chosen], axis=1)
        found, weight = _merged(found, weight)
        known = (
            (found, weight)
            if known is None
            else _merged(*map(np.concatenate, zip(known, (found, weight), strict=True)))
        )
        if len(known[0]) > MOST_SUMS:
            raise TooMany
        if progress is not None:
            progress(len(known[0]))
    assert known is not None
    return Vectors(list(sums), *known)


def _pairings(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every way to pair the sorted `rows` [M, G] with the multisets `counts` [V, n], equal rollouts not told apart.

    Returns the row, the multiset and the chosen members, [K], [K], [K, G]. Members go up along a run of
    equal entries, which makes each way come up once.
    """
    size, kinds = rows.shape[1], counts.shape[1]
    r = np.repeat(np.arange(len(rows)), len(counts))
    v = np.tile(np.arange(len(counts)), len(rows))
    left, last = counts[v], np.zeros(len(r), dtype=np.int8)
    chosen = np.zeros((len(r), size), dtype=np.int8 if kinds < 128 else np.int32)
    members = np.arange(kinds)
    for at in range(size):
        allowed = left > 0
        if at:
            run = rows[r, at] == rows[r, at - 1]
            allowed &= ~run[:, None] | (members >= last[:, None])
        k, j = np.nonzero(allowed)
        r, v, left, chosen = r[k], v[k], left[k], chosen[k]
        left[np.arange(len(k)), j] -= 1
        chosen[:, at], last = j, j.astype(last.dtype if kinds < 128 else np.int32)
    return r, v, chosen


def _run_logs(rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """The log of the product of n! over runs of n equal neighbours, for each row."""
    total, run = np.zeros(len(rows)), np.ones(len(rows), dtype=np.int64)
    for at in range(1, rows.shape[1] + 1):
        goes_on = rows[:, at] == rows[:, at - 1] if at < rows.shape[1] else np.zeros(len(rows), dtype=bool)
        total += np.where(goes_on, 0.0, logs[run])
        run = np.where(goes_on, run + 1, 1)
    return total


def _merged(rows: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that differ, and the mass of those alike together."""
    bits = max(1, int(rows.max(initial=0)).bit_length())
    per_word = 63 // bits
    words = []
    for start in range(0, rows.shape[1], per_word):
        word = np.zeros(len(rows), dtype=np.int64)
        for column in rows[:, start : start + per_word].T:
            word = (word << bits) | column
        words.append(word)
    order = np.lexsort(words) if len(words) > 1 else np.argsort(words[0], kind="stable")
    new = np.ones(len(rows), dtype=bool)
    new[1:] = np.any([word[order][1:] != word[order][:-1] for word in words], axis=0)
    first = np.flatnonzero(new)
    return rows[order[first]], np.add.reduceat(mass[order], first)
