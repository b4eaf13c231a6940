"""Scored rows, written as JSON lines or Parquet."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from rewardspec.logs.outputs import BadPath, replace
from rewardspec.logs.rows import JSON_TEXT, PARQUET, BadLog, Rows, Unread
from rewardspec.text.shown import shown

LINES = (".jsonl", ".ndjson", ".json", ".jsonlines", "")


def check_format(output: Path) -> None:
    """Raise BadPath for an output whose suffix is not that of a format that can be written."""
    suffix = output.suffix.lower()
    if suffix not in (*PARQUET, *LINES):
        raise BadPath(
            f"{shown(output)}: scored rows are written as Parquet (.parquet) or JSON lines (.jsonl), not {suffix}"
        )
    if suffix in PARQUET:
        try:
            import pyarrow.parquet  # noqa: F401
        except ModuleNotFoundError:
            raise BadPath("writing Parquet needs pyarrow: pip install 'rewardspec[logs]'") from None


def write_scored(output: Path, rows: Rows, places: Sequence[int], added: Mapping[str, Sequence[Any]]) -> None:
    """Write these rows of a file with columns added.

    places: the indices of the rows, in order. added: columns with a value for each of them. The text of JSON lines and
    the types of Parquet do not change.
    """
    if output.suffix.lower() not in PARQUET:
        replace(output, lambda path: _write_lines(path, rows, places, added))
    elif rows.table is not None:
        replace(output, lambda path: _write_table(path, rows.table.take(places), added))
    else:
        replace(
            output,
            lambda path: _write_table(
                path, _table([row for i in places if isinstance(row := rows.rows[i], dict)]), added
            ),
        )


def write_aside(output: Path, rows: Rows, bad: Sequence[tuple[int, str]]) -> None:
    """Write the bad rows as JSON lines, each with its number and reason; no file if there are none."""
    if not bad:
        output.unlink(missing_ok=True)
        return

    def lines(path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            for number, reason in bad:
                row = rows.rows[number - 1]
                head = {"row": number, "reason": reason}
                if isinstance(row, Unread):
                    out.write(_json({**head, "text": row.text}) + "\n")
                else:
                    held = rows.texts[number - 1].strip() if rows.texts is not None else _json(row)
                    out.write(f'{_json(head)[:-1]}, "rollout": {held}}}\n')

    replace(output, lines)


def _json(value: object) -> str:
    return json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    """A value of a Parquet type that JSON lacks, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)


def _write_lines(path: Path, rows: Rows, places: Sequence[int], added: Mapping[str, Sequence[Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        for k, i in enumerate(places):
            text = rows.texts[i].strip() if rows.texts is not None else _json(rows.rows[i])
            more = _json({name: values[k] for name, values in added.items()})
            is_bare = not rows.rows[i] or not added
            held = text[:-1].rstrip()
            out.write((held + more[1:] if is_bare and added else text if not added else f"{held}, {more[1:]}") + "\n")


def _write_table(path: Path, table: Any, added: Mapping[str, Sequence[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    for name, values in added.items():
        lists = any(isinstance(value, list) for value in values)
        kind = pyarrow.list_(pyarrow.float64()) if lists else pyarrow.float64()
        table = table.append_column(_name(name, table.column_names), pyarrow.array(values, kind))
    try:
        pyarrow.parquet.write_table(table, path)
    except pyarrow.ArrowException as error:
        raise BadLog(f"these rows cannot be written as Parquet, only as JSON lines: {error}") from None


def _table(rows: Sequence[dict[str, Any]]) -> Any:
    """Rows of JSON lines as a pyarrow Table; a key that a row lacks is null.

    A column with values of several types, or mappings with different keys (Parquet would give all keys to all), is
    written as JSON text, which the field's metadata records.
    """
    import pyarrow

    columns: list[Any] = []
    fields: list[Any] = []
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        try:
            column = pyarrow.array(values)
            whole = _same(column.to_pylist(), values) and not _has_empty_structs(column.type)
        except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError):
            whole = False
        if not whole:
            column = pyarrow.array([None if v is None else json.dumps(v) for v in values])
        columns.append(column)
        written = _name(name, [field.name for field in fields])
        fields.append(pyarrow.field(written, column.type, metadata=None if whole else JSON_TEXT))
    return pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields))


def _same(found: list[Any], values: list[Any]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(found, values, strict=True))


def _name(name: str, taken: Sequence[str]) -> str:
    """A column's name as UTF-8, different from those taken."""
    written = str(name).encode("utf-8", "backslashreplace").decode()
    while written in taken:
        written += "_"
    return written


def _has_empty_structs(kind: Any) -> bool:
    """Whether a type contains a struct without fields, which Parquet cannot store."""
    import pyarrow

    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return (pyarrow.types.is_struct(kind) and not inner) or any(map(_has_empty_structs, inner))
