"""All sums of the vectors of several parts, up to the order of rollouts, without trying all groups.

For `zscore(correct) + zscore(length)`: each part has a set of advantage vectors of a group. Two parts are added by
pairing the rollouts of one with those of the other in every distinct way. Equal sums are merged at once, so memory is
bounded by the number of results.

Vectors hold indices into a list of exact values, and sums are looked up in a table. So exact values stay exact, and
two are merged only if they are equal. The value of a rollout with a list is a tuple, one for each item; a value of the
rollout is added to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rewardspec.ir.exact import is_unknown, items_of, of_each
from rewardspec.ops.effort import Allowance
from rewardspec.ops.real import Number, Pool, Real, TooClose, Unknown

MOST_SUMS = 3_000_000  # vectors kept at once
MOST_VALUE_SUMS = 5_000_000  # sums of two values in the table
MOST_REAL_SUMS = 50_000  # the same, where values are not sums of roots
MOST_PAIRINGS = 200_000_000  # ways to pair rollouts that are tried for one sum of parts
PAIRINGS_AT_ONCE = 2_000_000  # pairings in memory at once
_PAIRS_AT_FIRST = 400_000  # pairs of vectors in the first piece

Exact = Number | None | tuple[Number | None, ...]  # the value of a rollout, or of its items; None if missing


class TooMany(Exception):
    """There are too many vectors, values or pairings to count."""


@dataclass(frozen=True)
class Vectors:
    """Vectors up to order: `rows` [M, G] holds indices into `values`, each row sorted and all rows different.

    mass: [M], the probability of each. unsure: the probability of groups with values too close to call, which have no
    row; so the number of rows is a lower bound.
    """

    values: list[Exact]
    rows: np.ndarray
    mass: np.ndarray
    unsure: float = 0.0

    def __len__(self) -> int:
        return len(self.rows)


def vectors(found: Iterable[tuple[Sequence[Exact | Unknown], float]]) -> Vectors:
    """Vectors from lists of values and their probabilities; lists that are equal up to order are merged."""
    number: dict[Exact, int] = {}
    mass: dict[tuple[int, ...], float] = {}
    unsure = 0.0
    for values, weight in found:
        known = [v for v in values if not isinstance(v, Unknown) and not is_unknown(v)]
        if len(known) < len(values):
            unsure += weight
            continue
        row = tuple(sorted(number.setdefault(v, len(number)) for v in known))
        mass[row] = mass.get(row, 0.0) + weight
    if not mass:
        raise TooClose("every group has a value that is too close to call")
    return Vectors(list(number), np.array(list(mass), dtype=np.int64), np.array(list(mass.values())), float(unsure))


def add(
    a: Vectors, b: Vectors, progress: Callable[[int], None] | None = None, allowance: Allowance | None = None
) -> Vectors:
    """All sums of a vector of `a` and one of `b`, with their probabilities if `a` and `b` are independent.

    progress: called with the number of sums found so far. Raises TooMany.
    """
    slow = any(isinstance(v, Real) for value in (*a.values, *b.values) for v in items_of(value))
    if len(a.values) * len(b.values) > (MOST_REAL_SUMS if slow else MOST_VALUE_SUMS):
        raise TooMany
    sums: dict[Exact, int] = {}
    pool = Pool()
    found = []
    for x in a.values:
        if slow and allowance is not None and allowance.is_spent:
            raise TooMany
        found.append([of_each(pool.canonical, _plus(x, y)) for y in b.values])
    table = np.array([[-1 if is_unknown(v) else sums.setdefault(v, len(sums)) for v in row] for row in found])
    size = a.rows.shape[1]
    members, counts = _runs(b.rows)
    logs = np.concatenate([[0.0], np.log(np.arange(1, size + 1)).cumsum()])  # of factorials
    within_b = logs[counts].sum(1)
    known: tuple[np.ndarray, np.ndarray] | None = None
    tried, unsure = 0, a.unsure + b.unsure
    for some, multisets in _pieces(len(a), len(b), max(1, _PAIRS_AT_FIRST // (len(b) * 4))):
        for r, v, chosen in _pairings(a.rows, counts, some, multisets):
            tried += len(r)
            chosen = members[v[:, None], chosen]
            pairs = a.rows[r] * len(b.values) + chosen
            within = _run_logs(a.rows[r], logs) + within_b[v] - logs[size] - _run_logs(pairs, logs)
            rows, mass = np.sort(table[a.rows[r], chosen], axis=1), a.mass[r] * b.mass[v] * np.exp(within)
            sure = rows[:, 0] >= 0
            if not sure.all():
                unsure += float(mass[~sure].sum())
                rows, mass = rows[sure], mass[sure]
            merged = _merged(rows, mass)
            known = merged if known is None else _merged(*map(np.concatenate, zip(known, merged, strict=True)))
            if len(known[0]) > MOST_SUMS or tried > MOST_PAIRINGS:
                raise TooMany
            if progress is not None:
                progress(len(known[0]))
    assert known is not None
    if not len(known[0]):
        raise TooClose("every group has a value that is too close to call")
    return Vectors(list(sums), *known, float(unsure))


def _plus(x: Exact, y: Exact) -> Exact:
    """The sum; None (missing) if either is."""
    if isinstance(x, tuple):
        return tuple(_sum(i, y) for i in x) if not isinstance(y, tuple) else tuple(map(_sum, x, y))
    return tuple(_sum(x, i) for i in y) if isinstance(y, tuple) else _sum(x, y)


def _sum(x: Number | None, y: Number | None) -> Number | None:
    if x is None or y is None:
        return None
    total: Number = x + y
    return total


def _runs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct entries of each sorted row and their counts, both [V, L], padded with count 0."""
    place = np.zeros(rows.shape, dtype=np.int64)
    place[:, 1:] = (rows[:, 1:] != rows[:, :-1]).cumsum(1)
    v = np.arange(len(rows))[:, None]
    members, counts = (np.zeros((len(rows), int(place.max(initial=0)) + 1), dtype=t) for t in (np.int64, np.int8))
    members[v, place] = rows
    np.add.at(counts, (np.broadcast_to(v, place.shape), place), 1)
    return members, counts


Pairings = tuple[np.ndarray, np.ndarray, np.ndarray]  # the row, the multiset, and the chosen indices into it


def _pieces(rows: int, multisets: int, step: int) -> Iterator[tuple[range, range]]:
    """All rows with all multisets, `step` rows at a time."""
    for start in range(0, rows, step):
        yield range(start, min(start + step, rows)), range(multisets)


def _pairings(rows: np.ndarray, counts: np.ndarray, of_rows: range, of_counts: range) -> Iterator[Pairings]:
    """Every distinct way to pair the sorted `rows` [M, G] with the multisets `counts` [V, L].

    Yields [K], [K], [K, G], a piece at a time. A piece with more than `PAIRINGS_AT_ONCE` is split in halves, which
    bounds memory. Raises TooMany if one row and one multiset have more than that.
    """
    found = _paired(rows[of_rows.start : of_rows.stop], counts[of_counts.start : of_counts.stop])
    if found is not None:
        r, v, chosen = found
        yield r + of_rows.start, v + of_counts.start, chosen
        return
    if len(of_rows) == len(of_counts) == 1:
        raise TooMany
    if len(of_rows) > 1:
        middle = len(of_rows) // 2
        halves = [(of_rows[:middle], of_counts), (of_rows[middle:], of_counts)]
    else:
        middle = len(of_counts) // 2
        halves = [(of_rows, of_counts[:middle]), (of_rows, of_counts[middle:])]
    for half in halves:
        yield from _pairings(rows, counts, *half)


def _paired(rows: np.ndarray, counts: np.ndarray) -> Pairings | None:
    """The pairings of all rows with all multisets; None if they are too many to hold at once.

    Members increase along a run of equal entries, so each way is found once. The last run takes the rest.
    """
    size, kinds = rows.shape[1], counts.shape[1]
    r = np.repeat(np.arange(len(rows)), len(counts))
    v = np.tile(np.arange(len(counts)), len(rows))
    left, last = counts[v], np.zeros(len(r), dtype=np.int8)
    chosen = np.zeros((len(r), size), dtype=np.int8)  # a group has at most 64 rollouts
    members = np.arange(kinds)
    for at in range(size):
        allowed = left > 0
        if at:
            run = rows[r, at] == rows[r, at - 1]
            allowed &= ~run[:, None] | (members >= last[:, None])
        ends = rows[r, at] == rows[r, -1]
        allowed[ends] &= members == np.argmax(left[ends] > 0, axis=1)[:, None]
        if np.count_nonzero(allowed) > PAIRINGS_AT_ONCE:
            return None
        k, j = np.nonzero(allowed)
        r, v, left, chosen = r[k], v[k], left[k], chosen[k]
        left[np.arange(len(k)), j] -= 1
        chosen[:, at], last = j, j.astype(np.int8)
    return r, v, chosen


def _run_logs(rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """For each row, the log of the product of n! over its runs of n equal neighbours."""
    total, run = np.zeros(len(rows)), np.ones(len(rows), dtype=np.int64)
    for at in range(1, rows.shape[1] + 1):
        goes_on = rows[:, at] == rows[:, at - 1] if at < rows.shape[1] else np.zeros(len(rows), dtype=bool)
        total += np.where(goes_on, 0.0, logs[run])
        run = np.where(goes_on, run + 1, 1)
    return total


def _merged(rows: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, with the summed mass of equal ones."""
    bits = max(1, int(rows.max(initial=0)).bit_length())
    per_word = 63 // bits
    words = []
    for start in range(0, rows.shape[1], per_word):
        word = np.zeros(len(rows), dtype=np.int64)
        for column in rows[:, start : start + per_word].T:
            word = (word << bits) | column
        words.append(word)
    order = np.lexsort(words) if len(words) > 1 else np.argsort(words[0], kind="stable")
    if not len(rows):
        return rows, mass
    new = np.ones(len(rows), dtype=bool)
    new[1:] = np.any([word[order][1:] != word[order][:-1] for word in words], axis=0)
    first = np.flatnonzero(new)
    return rows[order[first]], np.add.reduceat(mass[order], first)
