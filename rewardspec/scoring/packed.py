"""Columns of many rows in little memory: 8 bytes a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

LARGEST_WHOLE = 2**53  # floats hold every whole number up to here
Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """A list of numbers for each row. lengths: -1 for a row without a list."""

    numbers: Numbers
    lengths: Places


Packed: TypeAlias = Numbers | Ragged | list[Any]  # NaN is missing; a list is of texts, or of ids


def pack(values: Sequence[Any], listed: bool = False) -> Packed:
    """A value for each row, None for missing; `listed`, a list of values, None for none."""
    if not listed:
        numbers = _numbers(values)
        return list(values) if numbers is None else numbers
    numbers = _numbers(list(chain.from_iterable(one for one in values if one is not None)))
    if numbers is None:
        return list(values)
    return Ragged(numbers, np.array([-1 if one is None else len(one) for one in values], np.int64))


def _numbers(values: Sequence[Any]) -> Numbers | None:
    """None for values that are no numbers, or that no float holds."""
    kinds = {*map(type, values)}
    if not kinds <= {float, int, bool, type(None)}:
        return None
    if int in kinds and any(type(v) is int and abs(v) > LARGEST_WHOLE for v in values):
        return None
    return np.array(values, np.float64)


def join(parts: Sequence[Packed]) -> Packed:
    """The columns of consecutive parts as one."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    ragged = [part for part in parts if isinstance(part, Ragged)]
    if parts and len(arrays) == len(parts):
        return np.concatenate(arrays)
    if parts and len(ragged) == len(parts):
        return Ragged(
            np.concatenate([part.numbers for part in ragged]), np.concatenate([part.lengths for part in ragged])
        )
    return [value for part in parts for value in plain(part, 0, size(part))]


def size(column: Packed) -> int:
    return len(column.lengths) if isinstance(column, Ragged) else len(column)


def plain(column: Packed, start: int, stop: int, first: int | None = None) -> list[Any]:
    """The values of consecutive rows, None for missing. first: where the numbers of `start` begin, if it is known."""
    if isinstance(column, Ragged):
        lengths = column.lengths[start:stop].tolist()
        at = int(np.maximum(column.lengths[:start], 0).sum()) if first is None else first
        found = []
        for length in lengths:
            found.append(None if length < 0 else _values(column.numbers[at : at + length]))
            at += max(length, 0)
        return found
    return _values(column[start:stop]) if isinstance(column, np.ndarray) else column[start:stop]


def _values(numbers: Numbers) -> list[float | None]:
    return [None if value != value else value for value in numbers.tolist()]


def taken(column: Packed, rows: Places) -> Any:
    """The values of these rows as an advantage function takes them."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, list):
        return [column[i] for i in rows.tolist()]
    ends = np.cumsum(np.maximum(column.lengths, 0))
    numbers, lengths = column.numbers, column.lengths
    return [numbers[ends[i] - lengths[i] : ends[i]].tolist() for i in rows.tolist()]
