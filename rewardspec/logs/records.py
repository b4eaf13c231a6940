"""The rows of a file as a stream, one after another, in a bounded amount of memory."""

from __future__ import annotations

import csv
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rewardspec.logs import weights_only
from rewardspec.logs.format import ARROW, CSV, LINES, PARQUET, START, TORCH, Head, Mark
from rewardspec.logs.rows import DEEPEST, JSON_TEXT, PACKED, BadLog, Unread, repeated, row_of, unfolded, unlike
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

LONGEST_LINE = 128 * 2**20  # bytes
KNOWN_BY = 64  # bytes before a mark, by which a file is known again
FIRST = 64  # rows among which the first that can be read is looked for
AT_ONCE = 256  # rows of a table
BUFFER = 2**20  # bytes of a column that are read together
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = {"": None, "nan": None, "NaN": None, "true": True, "True": True, "false": False, "False": False}

Records = Iterator[tuple[int, dict[str, Any] | Unread]]


def kind_of(path: Path) -> str:
    """The kind of a file by its first bytes; of texts, CSV by its name. Raises BadLog, OSError."""
    with open(path, "rb") as file:
        head = file.read(4096)
    table = (
        PARQUET if head.startswith(b"PAR1") else ARROW if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")) else None
    )
    if table is not None:
        if any("\ud800" <= char <= "\udfff" for char in str(path)):
            raise BadLog(f"{shown(path)}: its path is not UTF-8, and pyarrow opens no such file: rename it")
        return table
    if head.startswith(b"PK\x03\x04") and _is_torch(path):
        return TORCH
    if head.startswith(b"\x80") or path.suffix in (".pt", ".pth", ".pkl"):
        raise BadLog(
            f"{shown(path)} is not a file that torch.save writes now, which is a zip file; an older pickle is not "
            "opened, because it can run code: load it where you trust it, and save it again"
        )
    packed = next((kind for start, kind in PACKED.items() if head.startswith(start)), None)
    wrong = f"is compressed ({packed}): unpack it first" if packed else unlike(head)
    if wrong:
        raise BadLog(f"{shown(path)} {wrong}")
    return CSV if path.suffix.lower() in (".csv", ".tsv") else LINES


def _is_torch(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return any(name.endswith("/data.pkl") for name in file.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def head_of(path: Path, most: int = 1) -> Head:
    """The beginning of a file: its kind and its first rows. Raises BadLog, OSError."""
    kind = kind_of(path)
    columns, metadata = _schema(path, kind)
    rows: list[dict[str, Any]] = []
    problem = None
    for number, row in islice(records(path, kind), FIRST):
        if not isinstance(row, Unread):
            rows.append(row)
            if len(rows) == most:
                break
        elif problem is None:
            problem = f"{shown(path)}:{number}: {row.reason}"
    problem = None if rows else problem or f"{shown(path)} has no rollouts"
    return Head(path, kind, rows, columns or list(dict.fromkeys(key for row in rows for key in row)), metadata, problem)


def schema_of(path: Path) -> Head:
    """The columns and the metadata of a file, without its rows. Raises BadLog, OSError."""
    kind = kind_of(path)
    columns, metadata = _schema(path, kind)
    return Head(path, kind, (), columns, metadata)


def records(path: Path, kind: str, only: Sequence[str] | None = None, since: Mark = START) -> Records:
    """The rows of a file with their numbers, from 1. Raises BadLog, OSError.

    only: the columns to read, of a table. since: the first line that is read, of JSON lines.
    """
    if kind == PARQUET:
        return _parquet(path, only)
    if kind == ARROW:
        return _arrow(path)
    if kind == CSV:
        return _csv(path)
    if kind == TORCH:
        return iter([(1, weights_only.load(path))])
    return _lines(path, since)


def further(path: Path, mark: Mark, line: int) -> Mark:
    """The mark of a later line of a file, which is not parsed. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(mark.byte)
        for _ in range(line - mark.line):
            file.readline()
        byte = file.tell()
        file.seek(max(0, byte - KNOWN_BY))
        return Mark(line, byte, file.read(byte - file.tell()))


def is_known(path: Path, mark: Mark) -> bool:
    """Whether a file still has the bytes before a mark. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(mark.byte - len(mark.before))
        return file.read(len(mark.before)) == mark.before


def _texts(path: Path, since: Mark = START) -> Iterator[tuple[int, str]]:
    """The lines of a text, in UTF-8; bytes that are none are kept as surrogates. Raises BadLog for a line too long."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(since.byte)
        for number in range(since.line, 2**63):
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                if file.tell() < size:
                    raise BadLog(f"{shown(path)} was cut while it was read")
                return
            if len(line) > LONGEST_LINE:
                raise BadLog(f"{shown(path)}:{number}: the line is longer than {LONGEST_LINE // 2**20} MiB")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line.decode("utf-8", "surrogateescape")


def _lines(path: Path, since: Mark) -> Records:
    for number, text in _texts(path, since):
        if not text.strip():
            continue
        row = row_of(text.rstrip("\r\n"))
        if isinstance(row, Unread) and not text.endswith("\n"):
            row = Unread(f"the last line is cut short ({row.reason}): the run was writing it", row.text)
        yield number, row


def _csv(path: Path) -> Records:
    csv.field_size_limit(LONGEST_LINE)
    texts = _texts(path)
    started = 1

    def counted() -> Iterator[str]:
        nonlocal started
        for number, text in texts:
            started = number
            if "\0" in text:
                raise BadLog(f"{shown(path)}:{number}: the line has NUL bytes")
            yield text

    reader = csv.reader(counted(), delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
    names: list[str] | None = None
    try:
        for cells in reader:
            if names is None:
                names = cells
                twice = repeated(names)
                if twice is not None:
                    raise BadLog(f"{shown(path)} has two columns called `{shorten(twice)}`")
            elif len(cells) != len(names):
                if cells:
                    yield started, Unread(f"{len(cells)} values for {len(names)} columns", "")
            elif any("\udc80" <= char <= "\udcff" for cell in cells if not cell.isascii() for char in cell):
                yield started, Unread("not UTF-8 text", "")
            else:
                yield started, {name: _cell(name, cell) for name, cell in zip(names, cells, strict=True)}
    except csv.Error as error:
        raise BadLog(f"{shown(path)}:{started}: not CSV: {shorten(str(error), 80)}") from None


def _cell(name: str, cell: str) -> Any:
    """A value of a CSV file: a number, true or false, or text; prompts, completions and ids are text."""
    if name in ("prompt", "completion", "group", "uid", "prompt_id"):
        return cell
    if cell in _WORDS:
        return _WORDS[cell]
    if _NUMBER.fullmatch(cell) and len(cell) <= 400:
        return float(cell) if set(cell) & set(".eE") else int(cell)
    return cell


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadLog(
            f"{shown(path)}: reading Parquet and Arrow needs pyarrow: pip install 'rewardspec[logs]'"
        ) from None
    return pyarrow


def _schema(path: Path, kind: str) -> tuple[list[str], dict[bytes, bytes]]:
    if kind not in (PARQUET, ARROW):
        return [], {}
    pyarrow = _pyarrow(path)
    try:
        if kind == PARQUET:
            with pyarrow.parquet.ParquetFile(path) as file:
                schema = file.schema_arrow
        else:
            with pyarrow.memory_map(str(path)) as source:
                schema = _batches_of(pyarrow, source).schema
    except (pyarrow.ArrowException, OSError) as error:
        raise BadLog(f"{shown(path)} is not a readable {kind} file: {shorten(str(error), 80)}") from None
    names = list(schema.names)
    twice = repeated(names)
    if twice is not None:
        raise BadLog(f"{shown(path)} has two columns called `{shorten(twice)}`")
    deep = next((f.name for f in schema if _depth(f.type) > DEEPEST), None)
    if deep is not None:
        raise BadLog(f"column `{shorten(deep)}` of {shown(path)} is nested more than {DEEPEST} deep")
    return names, dict(schema.metadata or {})


def _depth(kind: Any) -> int:
    layer, depth = [kind], 0
    while layer and depth <= DEEPEST:
        depth += 1
        layer = [one.field(i).type for one in layer for i in range(one.num_fields)]
    return depth


def _parquet(path: Path, only: Sequence[str] | None) -> Records:
    pyarrow = _pyarrow(path)
    try:
        # not mapped into memory: a file that is cut while it is read would end the process
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            written = [f.name for f in file.schema_arrow if (f.metadata or {}).items() >= JSON_TEXT.items()]
            batches = file.iter_batches(AT_ONCE, columns=None if only is None else list(only), use_threads=False)
            number = 0
            for number, row in _rows(path, batches, written):
                yield number, row
            if number != file.metadata.num_rows:  # Arrow may end without an error there
                raise BadLog(f"{shown(path)} was cut while it was read")
    except (pyarrow.ArrowException, OSError) as error:
        raise BadLog(f"{shown(path)} is not a readable Parquet file: {shorten(str(error), 80)}") from None


def _arrow(path: Path) -> Records:
    """The rows of one file of a folder that `datasets` saved, or of any Arrow file."""
    pyarrow = _pyarrow(path)
    try:
        with pyarrow.memory_map(str(path)) as source:
            batches = _batches_of(pyarrow, source)
            whole = (
                (batches.get_batch(i) for i in range(batches.num_record_batches))
                if hasattr(batches, "get_batch")
                else batches
            )
            parts = (one.slice(at, AT_ONCE) for one in whole for at in range(0, one.num_rows, AT_ONCE))
            yield from _rows(path, _while_whole(path, parts), [])
    except (pyarrow.ArrowException, OSError) as error:
        raise BadLog(f"{shown(path)} is not a readable Arrow file: {shorten(str(error), 80)}") from None


def _while_whole(path: Path, parts: Iterator[Any]) -> Iterator[Any]:
    """The parts of a file that is mapped into memory: one that was cut must not be touched. Raises BadLog, OSError."""
    size = path.stat().st_size
    while True:
        if path.stat().st_size < size:
            raise BadLog(f"{shown(path)} was cut while it was read")
        part = next(parts, None)
        if part is None:
            return
        yield part


def _batches_of(pyarrow: Any, source: Any) -> Any:
    try:
        return pyarrow.ipc.open_stream(source)
    except pyarrow.ArrowInvalid:
        source.seek(0)
        return pyarrow.ipc.open_file(source)


def _rows(path: Path, batches: Any, written: Sequence[str]) -> Records:
    number = 0
    for batch in batches:
        names = batch.schema.names
        columns = []
        for name, column in zip(names, batch.columns, strict=True):
            try:
                columns.append(column.to_pylist())
            except (ValueError, OverflowError, ImportError) as error:
                raise BadLog(
                    f"column `{shorten(name)}` of {shown(path)} cannot be read: {shorten(str(error), 80)}"
                ) from None
        for values in zip(*columns, strict=True):
            number += 1
            row = dict(zip(names, values, strict=True))
            yield number, unfolded(row, written) if written else row
