"""What the columns of JSON lines become in Parquet: found part by part, and put together for the whole file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rewardspec.logs.rows import JSON_TEXT
from rewardspec.scoring.packed import Packed, Ragged

# Column to its pyarrow type; None where values are written as JSON text: those of several types, and mappings with
# different keys, as Parquet would give all keys to all
Kinds: TypeAlias = dict[str, Any]


def kinds_of(rows: Sequence[Mapping[str, Any]]) -> Kinds:
    """The types of the columns of these rows; a key that a row lacks is null."""
    import pyarrow

    found: Kinds = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        try:
            column = pyarrow.array(values)
            whole = _same(column.to_pylist(), values) and not _has_empty_structs(column.type)
            found[name] = column.type if whole else None
        except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError):
            found[name] = None
    return found


def joined(parts: Iterable[Kinds]) -> Kinds:
    """The types of the columns of several parts together."""
    found: Kinds = {}
    for kinds in parts:
        for name, kind in kinds.items():
            found[name] = _common(found[name], kind) if name in found else kind
    return found


def _common(one: Any, other: Any) -> Any:
    """A type that holds the values of both; None if there is none."""
    import pyarrow
    import pyarrow.types as of

    if one is None or other is None or one == other:
        return None if one is None or other is None else one
    if of.is_null(one) or of.is_null(other):
        return other if of.is_null(one) else one
    if {one, other} == {pyarrow.int64(), pyarrow.float64()}:
        return pyarrow.float64()  # `converted` raises for whole numbers that no float holds
    if of.is_list(one) and of.is_list(other):
        inner = _common(one.value_type, other.value_type)
        return None if inner is None else pyarrow.list_(inner)
    if of.is_struct(one) and of.is_struct(other):
        names = [field.name for field in one]
        if {*names} != {field.name for field in other}:
            return None
        inner = [_common(one.field(name).type, other.field(name).type) for name in names]
        return None if None in inner else pyarrow.struct(list(zip(names, inner, strict=True)))
    return None


def schema_of(kinds: Kinds) -> Any:
    """The pyarrow Schema of the columns."""
    import pyarrow

    fields: list[Any] = []
    for name, kind in kinds.items():
        written = column_name(name, [field.name for field in fields])
        fields.append(pyarrow.field(written, kind or pyarrow.string(), metadata=JSON_TEXT if kind is None else None))
    return pyarrow.schema(fields)


class NotOfType(ValueError):
    """A column has values that its type does not hold."""

    def __init__(self, column: str):
        super().__init__(column)
        self.column = column


def converted(rows: Sequence[Mapping[str, Any]], kinds: Kinds) -> list[Any]:
    """The columns of these rows as pyarrow arrays. Raises NotOfType."""
    import pyarrow

    found = []
    for name, kind in kinds.items():
        values = [row.get(name) for row in rows]
        if kind is None:
            found.append(pyarrow.array([None if v is None else json.dumps(v) for v in values], pyarrow.string()))
        else:
            try:
                found.append(pyarrow.array(values, kind))
            except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError):
                raise NotOfType(name) from None
    return found


def added_field(name: str, column: Packed) -> Any:
    """The field of an added column, of numbers or of lists of them."""
    import pyarrow

    lists = isinstance(column, Ragged) or (isinstance(column, list) and any(isinstance(v, list) for v in column))
    return pyarrow.field(name, pyarrow.list_(pyarrow.float64()) if lists else pyarrow.float64())


def column_name(name: str, taken: Sequence[str]) -> str:
    """A column's name as UTF-8, different from those taken."""
    written = str(name).encode("utf-8", "backslashreplace").decode()
    while written in taken:
        written += "_"
    return written


def _same(found: list[Any], values: list[Any]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(found, values, strict=True))


def _has_empty_structs(kind: Any) -> bool:
    """Whether a type contains a struct without fields, which Parquet cannot store."""
    import pyarrow

    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return (pyarrow.types.is_struct(kind) and not inner) or any(map(_has_empty_structs, inner))
