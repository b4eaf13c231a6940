"""Columns of many rows in little memory: 8 bytes a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rewardspec.spec import Spec

LARGEST_WHOLE = 2**53  # floats hold every whole number up to here
Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """A list of numbers for each row. lengths: -1 for a row without a list."""

    numbers: Numbers
    lengths: Places


Lengths: TypeAlias = dict[str, Any] | None  # of each list, [N]
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
    if not all(issubclass(kind, float | int | type(None)) for kind in kinds):
        return None
    if int in kinds and any(isinstance(v, int) and abs(v) > LARGEST_WHOLE for v in values):
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
    """The values of these rows, of lists still packed: `flat_lists` makes of them what an advantage function takes."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, list):
        return [column[i] for i in rows.tolist()]
    lengths = column.lengths[rows]
    starts = (np.cumsum(np.maximum(column.lengths, 0)) - np.maximum(column.lengths, 0))[rows]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Ragged(column.numbers[np.repeat(starts, lengths) + within], lengths)


def flat_lists(spec: Spec, columns: Mapping[str, Any]) -> tuple[dict[str, Any], Lengths]:
    """The columns with those of lists as flat arrays of float64, and the lengths of the lists.

    Without arrays among its columns a function computes in float32. Lists that are not of numbers, or not equally long
    within a row, stay as they are, and there are no lengths: the function names what is wrong.
    """
    of = {name: spec.program.columns[name].level for name in columns if name in spec.program.columns}
    found, lengths = dict(columns), dict[str, Places]()
    for name in (name for name, level in of.items() if level.listed):
        given = columns[name]
        column = given if isinstance(given, Ragged) else pack(given, listed=True)
        known = lengths.setdefault(of[name].name, column.lengths) if isinstance(column, Ragged) else None
        if known is None or not isinstance(column, Ragged) or not np.array_equal(known, column.lengths):
            nested = {n: plain(v, 0, size(v)) for n, v in columns.items() if isinstance(v, Ragged)}
            return {**columns, **nested}, None
        found[name] = column.numbers
    return found, lengths or None
