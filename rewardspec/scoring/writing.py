"""Scored rows, written as JSON lines or Parquet while the file that they are from is read again."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Any

import numpy as np

from rewardspec.logs.outputs import BadPath, replace
from rewardspec.logs.parts import Part, RolloutFile
from rewardspec.logs.rows import PARQUET, BadLog, Unread
from rewardspec.scoring.packed import Packed, Ragged, plain
from rewardspec.scoring.parquet import Kinds, NotOfType, added_field, column_name, converted, schema_of
from rewardspec.scoring.table import Table
from rewardspec.text.shown import shown

LINES = (".jsonl", ".ndjson", ".json", ".jsonlines", "")
AT_ONCE = 4096  # rows between two writes, and the rows of a row group of Parquet

Write = Callable[[Part, "np.ndarray[Any, Any]", Mapping[str, Sequence[Any]]], None]


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


def is_table(output: Path) -> bool:
    return output.suffix.lower() in PARQUET


@dataclass(frozen=True)
class Scored:
    """What is written: the good rows of a file with columns added, and its bad rows.

    added: columns by the names that they get, a value for each row of the file. kinds: what the columns of JSON lines
    become in Parquet, else None.
    """

    file: RolloutFile
    table: Table
    added: Mapping[str, Packed]
    kinds: Kinds | None


def write_scored(output: Path, aside: Path, scored: Scored) -> None:
    """Write the good rows to `output` and the bad ones to `aside`, each completely or not at all.

    A file without rows is not written; an old `aside` is then removed, and an old `output` stays. The text of JSON
    lines and the types of Parquet do not change. Raises BadLog, OSError.
    """
    good, bad = bool(scored.table.good.any()), bool(scored.table.bad)

    def both(here: Path | None, there: Path | None) -> None:
        while True:
            try:
                return once(here, there)
            except NotOfType as error:  # found in a later part: the whole column becomes text
                assert scored.kinds is not None, "only then values are converted"
                scored.kinds[error.column] = None

    def once(here: Path | None, there: Path | None) -> None:
        with ExitStack() as opened:
            write = _no_rows if here is None else opened.enter_context(_Writer(here, is_table(output), scored)).write
            aside_file = None if there is None else opened.enter_context(open(there, "wb"))
            _write_all(scored, write, aside_file)
            scored.file.check_unchanged()

    if good and bad:
        replace(output, lambda here: replace(aside, lambda there: both(here, there)))
    elif bad:
        replace(aside, lambda there: both(None, there))
    elif good:
        replace(output, lambda here: both(here, None))
    if not bad:
        aside.unlink(missing_ok=True)


def _no_rows(part: Part, good: Any, added: Mapping[str, Sequence[Any]]) -> None:
    pass


def _write_all(scored: Scored, write: Write, aside: IO[bytes] | None) -> None:
    """Every row of the file to where it belongs."""
    at = dict.fromkeys(scored.added, 0)  # where the numbers of a part begin, in columns of lists
    for part in scored.file.parts(AT_ONCE):
        stop = part.first + len(part)
        values = {}
        for name, column in scored.added.items():
            values[name] = plain(column, part.first, stop, at[name])
            if isinstance(column, Ragged):
                at[name] += int(np.maximum(column.lengths[part.first : stop], 0).sum())
        good = np.flatnonzero(scored.table.good[part.first : stop])
        if len(good):
            write(part, good, {name: [column[i] for i in good.tolist()] for name, column in values.items()})
        if aside is not None and len(good) < len(part):
            aside.writelines(_aside(part, scored.table.bad))


def _aside(part: Part, bad: Mapping[int, str]) -> Iterator[bytes]:
    """The bad rows of a part as JSON lines, each with its number and reason."""
    rows = part.rows()
    for i, row in enumerate(rows):
        reason = bad.get(part.first + i)
        if reason is None:
            continue
        head = {"row": part.first + i + 1, "reason": reason}
        if isinstance(row, Unread):
            yield _json({**head, "text": row.text}).encode() + b"\n"
        else:
            held = part.lines[i].strip() if part.lines is not None else _json(row).encode()
            yield _json(head)[:-1].encode() + b', "rollout": ' + held + b"}\n"


class _Writer:
    """A file that rows are written to, part by part."""

    def __init__(self, path: Path, is_parquet: bool, scored: Scored):
        self.path, self.scored, self.names = path, scored, list(scored.added)
        self.write: Write = self._table if is_parquet else self._lines
        self.out: Any = None
        self.is_parquet = is_parquet
        keys = [json.dumps(name).replace("%", "%%") + ": %s" for name in self.names]
        self.pattern = ", ".join(keys) + "}\n"

    def __enter__(self) -> _Writer:
        if not self.is_parquet:
            self.out = open(self.path, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        if self.out is not None:
            self.out.close()

    def _lines(self, part: Part, good: Any, added: Mapping[str, Sequence[Any]]) -> None:
        places = good.tolist()
        if part.lines is not None:
            texts = [part.lines[i].strip() for i in places]
        else:
            rows = part.rows()
            texts = [_json(rows[i]).encode() for i in places]
        if not added:
            self.out.writelines(text + b"\n" for text in texts)
            return
        columns = [[_number(value) for value in column] for column in added.values()]
        for text, *values in zip(texts, *columns, strict=True):
            held = text[:-1].rstrip()
            comma = b"" if held == b"{" else b", "
            self.out.write(held + comma + (self.pattern % tuple(values)).encode())

    def _table(self, part: Part, good: Any, added: Mapping[str, Sequence[Any]]) -> None:
        import pyarrow
        import pyarrow.parquet

        file, kinds = self.scored.file, self.scored.kinds
        if kinds is None:
            batch = part.batch if len(good) == len(part) else part.batch.take(pyarrow.array(good))
            columns, fields = list(batch.columns), list(file.schema)
            metadata = file.schema.metadata
        else:
            rows = part.rows()
            chosen = [row for i in good.tolist() if isinstance(row := rows[i], dict)]
            columns, fields, metadata = converted(chosen, kinds), list(schema_of(kinds)), None
        for name, values in added.items():
            field = added_field(column_name(name, [one.name for one in fields]), self.scored.added[name])
            fields.append(field)
            columns.append(pyarrow.array(values, field.type))
        schema = pyarrow.schema(fields, metadata)
        try:
            table = pyarrow.Table.from_arrays(columns, schema=schema)
            if self.out is None:
                self.out = pyarrow.parquet.ParquetWriter(self.path, schema)
            self.out.write_table(table)
        except pyarrow.ArrowException as error:
            raise BadLog(f"these rows cannot be written as Parquet, only as JSON lines: {error}") from None


def _number(value: Any) -> str:
    """A number, None or a list of them as JSON."""
    return repr(value) if type(value) is float and value - value == 0 else json.dumps(value)


def _json(value: object) -> str:
    return json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    """A value of a Parquet type that JSON lacks, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)
