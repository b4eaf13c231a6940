"""Columns of a batch as an Arrow table: numbers, names, ids and texts, missing values and lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from rewardspec.logs.rows import JSON_TEXT

Kind = Literal["number", "whole", "truth", "name", "id", "text", "any"]

FULL, HASH, NONE = TEXTS = ("full", "hash", "none")  # of prompts and completions
HASH_BYTES = 16
INT64 = 2**63
AS_TEXT = date, time, timedelta, Decimal
MOST_BYTES = 2**28  # of a row group: a reader holds one at a time


@dataclass(frozen=True)
class Column:
    """One column of a batch of N rollouts.

    Column("number", [0.5, None])  # null where a value is missing: None or NaN

    values: N values, or those of all items if `lengths` has how many each rollout has. Texts can be a function that
    returns them; it is called where the table is made. kind: `text` is long: a string, or a conversation as JSON;
    `any` is what a data set has: numbers, truth values or strings, else JSON.
    """

    kind: Kind
    values: Any
    lengths: Sequence[int] | np.ndarray[Any, Any] | None = None


def table_of(columns: Mapping[str, Column], text: str = FULL) -> Any:
    """The pyarrow Table of a batch. text: `full`, `hash` for NAME_hash in place of each text, or `none`."""
    import pyarrow as pa

    arrays, fields = [], []
    for name, column in columns.items():
        if column.kind == "text" and text == NONE:
            continue
        values, marks = _array(column, hashed=text == HASH)
        if column.lengths is not None:
            ends = np.cumsum(np.asarray(column.lengths, dtype=np.int64))
            values = pa.ListArray.from_arrays(np.concatenate([[0], ends]).astype(np.int32), values)
        arrays.append(values)
        hashes = column.kind == "text" and text == HASH
        fields.append(pa.field(f"{name}_hash" if hashes else name, values.type, metadata=marks))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def row_group(table: Any) -> int:
    """How many rows of a table are one row group: at most `MOST_BYTES`, as far as rows have one size."""
    rows = int(table.num_rows)
    return max(1, min(rows, rows * MOST_BYTES // max(1, int(table.nbytes))))


def _array(column: Column, hashed: bool) -> tuple[Any, Mapping[bytes, bytes] | None]:
    """An Arrow array, and the marks of its field."""
    import pyarrow as pa

    values = column.values() if callable(column.values) else column.values
    match column.kind:
        case "number":
            return pa.array(np.array(values, dtype=np.float64), from_pandas=True), None
        case "whole":
            return pa.array(np.asarray(values, dtype=np.int32)), None
        case "truth":
            return pa.array(np.asarray(values, dtype=np.bool_)), None
        case "name":
            return _strings([None if _missing(value) else str(value) for value in values], pa.string()), None
        case "id":
            return _ids([None if _missing(value) else value for value in values])
        case "any":
            return _plain([_item(value) for value in values])
    texts, marks = _texts(values)
    if hashed:
        return pa.array(_hashes(texts), pa.string()), None
    return _strings(texts, pa.large_string()), marks


def _missing(value: object) -> bool:
    return value is None or value != value


def _item(value: Any) -> Any:
    """A value of a data set as plain Python has it; None for a missing one, texts of times and decimals.

    What cannot be read, such as a list within itself, is the name of its class.
    """
    try:
        return _inner(value)
    except RecursionError:
        return _class_of(value)


def _inner(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy and torch
        try:
            value = value.tolist()
        except Exception:  # a tensor without values, or whose values are elsewhere
            return _class_of(value)
    if isinstance(value, Mapping):
        return {key: _inner(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_inner(inner) for inner in value]
    if isinstance(value, AS_TEXT):
        return None if _missing(value) else str(value)
    return None if isinstance(value, float) and value != value else value


def _plain(values: list[Any]) -> tuple[Any, Mapping[bytes, bytes] | None]:
    """Values of one plain type as an array of it, others as JSON text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return _strings(values, pa.string()), None
    if kinds in ({bool}, {float}) or (kinds == {int} and all(abs(v or 0) < INT64 for v in values)):
        return pa.array(values), None
    if kinds == {int, float}:
        with suppress(OverflowError):  # of a whole number that is no double
            return pa.array([*map(_float, values)]), None
    return _strings([None if value is None else _json(value) for value in values], pa.string()), JSON_TEXT


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _ids(values: list[Any]) -> tuple[Any, Mapping[bytes, bytes] | None]:
    """Ids as int64, as strings, or else as JSON text."""
    import pyarrow as pa

    values = [value.item() if hasattr(value, "item") else value for value in values]
    values = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    present = [value for value in values if value is not None]
    if all(type(value) is int and -INT64 <= value < INT64 for value in present):
        return pa.array(values, pa.int64()), None
    if all(isinstance(value, str) for value in present):
        return _strings(values, pa.string()), None
    return _strings([None if value is None else _json(value) for value in values], pa.string()), JSON_TEXT


def _texts(values: Sequence[Any]) -> tuple[list[str | None], Mapping[bytes, bytes] | None]:
    """Texts as they are; JSON of all if some are conversations."""
    if all(value is None or isinstance(value, str) for value in values):
        return list(values), None
    return [None if value is None else _json(value) for value in values], JSON_TEXT


def _json(value: object) -> str:
    """A value as JSON; objects in it that are not data, such as images, as the name of their class."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_class_of, skipkeys=True)
    except (ValueError, RecursionError):  # a circle, or nested too deep
        return json.dumps(_class_of(value))


def _class_of(value: object) -> str:
    return f"<{type(value).__name__}>"


def _strings(values: list[str | None], kind: Any) -> Any:
    """An array of strings; half of a surrogate pair, which is no UTF-8, is written as `\\ud800`."""
    import pyarrow as pa

    try:
        return _one(pa.array(values, kind))
    except UnicodeError:
        clean = [v if v is None else v.encode("utf-8", "backslashreplace").decode() for v in values]
        return _one(pa.array(clean, kind))


def _one(array: Any) -> Any:
    return array.combine_chunks() if hasattr(array, "combine_chunks") else array


def _hashes(texts: Sequence[str | None]) -> list[str | None]:
    """BLAKE2b of each text's UTF-8, 128 bits as 32 hexadecimal digits. Rollouts of a group have one prompt."""
    known: dict[str | None, str | None] = {None: None}
    for text in texts:
        if text is not None and text not in known:
            data = text.encode("utf-8", "surrogatepass")
            known[text] = hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()
    return [known[text] for text in texts]


Texts = Sequence[Any] | Callable[[], Sequence[Any]]
