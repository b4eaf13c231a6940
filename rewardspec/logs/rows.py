"""The rows of a file of rollouts, JSON lines or Parquet; lines that cannot be read are kept with the reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

PARQUET = (".parquet", ".pq")
DEEPEST = 100  # levels of nested lists and mappings
JSON_TEXT = {b"rewardspec": b"json"}  # marks a Parquet column that holds values as JSON text
PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


class BadLog(ValueError):
    """A file of rollouts cannot be read, or lacks a column that the spec reads."""


@dataclass(frozen=True)
class Unread:
    """A line that is not a rollout, with the reason."""

    reason: str
    text: str


@dataclass(frozen=True)
class Rows:
    """The rows of a file, in order; row numbers start at 1, like line numbers.

    texts: the lines of a JSON lines file, without line breaks. table: the pyarrow Table of a Parquet file.
    """

    path: Path
    rows: Sequence[dict[str, Any] | Unread]
    texts: Sequence[str] | None = None
    table: Any = field(default=None, repr=False)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(key for row in self.rows if isinstance(row, dict) for key in row))

    def digests(self) -> list[str]:
        """A hash of each row, 16 hexadecimal digits."""
        if self.texts is not None:
            held = (text.encode("utf-8", "surrogateescape") for text in self.texts)
        else:
            held = (json.dumps(row, sort_keys=True, default=repr).encode() for row in map(_content, self.rows))
        return [hashlib.blake2b(one, digest_size=8).hexdigest() for one in held]


def _content(row: dict[str, Any] | Unread) -> object:
    return row if isinstance(row, dict) else row.text


def read_rows(path: Path) -> Rows:
    """The rows of a file: Parquet if it starts with Parquet's magic bytes, else JSON lines. Raises BadLog, OSError."""
    with open(path, "rb") as file:
        head = file.read(4)
        if head != b"PAR1":
            if path.suffix.lower() in PARQUET:
                why = "it looks like JSON lines: name it .jsonl" if head[:1] == b"{" else "it does not start with PAR1"
                raise BadLog(f"{shown(path)} is not a Parquet file: {why}")
            return _json_lines(path, _lines(path, head + file.read()))
    return _parquet(path)


def read_lines(path: Path) -> list[bytes]:
    """The lines of a JSON lines file. Raises BadLog for another kind of file, OSError."""
    return _lines(path, path.read_bytes())


def _lines(path: Path, data: bytes) -> list[bytes]:
    packed = next((kind for start, kind in PACKED.items() if data.startswith(start)), None)
    kind = f"is compressed ({packed}): unpack it first" if packed else unlike(data)
    if kind:
        raise BadLog(f"{shown(path)} {kind}")
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _json_lines(path: Path, lines: Sequence[bytes]) -> Rows:
    texts = [line.decode("utf-8", "surrogateescape").rstrip("\r") for line in lines]
    rows = [row_of(text) for text in texts]
    unread = [row for row in rows if isinstance(row, Unread)]
    if len(unread) == len(rows):
        first = next((i for i, row in enumerate(unread) if row.text.strip()), None)
        if first is None:
            raise BadLog(f"{shown(path)} has no rollouts: its lines are empty")
        raise BadLog(f"{shown(path)}:{first + 1}: {unread[first].reason}; the file {_no_lines(texts[first])}")
    return Rows(path, rows, texts)


def unlike(data: bytes) -> str | None:
    """Why a file cannot be lines of UTF-8 text, with the fix; None if it can."""
    head = data[:4096]
    if not data:
        return "has no rollouts: it is empty"
    if data.startswith(b"PAR1"):
        return "is Parquet, but must be JSON lines here"
    for start, kind in ((b"\xff\xfe\0\0", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
        if head.startswith(start):
            return f"is {kind} text: save it as UTF-8 (`iconv -f {kind} -t UTF-8`)"
    if b"\0" in head:
        return "is not UTF-8 text, it has NUL bytes: rollouts are read from JSON lines in UTF-8, or Parquet"
    if b"\r" in data.strip() and b"\n" not in data:
        return "has lines that end in CR only: end them in LF (`tr '\\r' '\\n'`)"
    return None


def _no_lines(text: str) -> str:
    """What a text is if none of its lines is a JSON object, with the fix."""
    start = text.lstrip()[:1]
    if start == "[":
        return "is a JSON list, or has lists: each rollout must be an object on its own line (`jq -c '.[]'`)"
    if text.strip() == "{":
        return "has JSON objects over several lines: each rollout must be an object on one line (`jq -c .`)"
    if start != "{" and ("," in text or "\t" in text):
        return "looks like CSV: rollouts are read from JSON lines or Parquet"
    return "has no rollouts, which are JSON objects, one on each line"


class Twice(ValueError):
    """A JSON object has a key twice, and a reader would lose one of the values."""


def once(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    """The `object_pairs_hook` of JSON objects whose keys differ. Raises Twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise Twice(f"the key `{shorten(next(key for key in found if keys.count(key) > 1))}` appears twice")
    return found


_ONCE = json.JSONDecoder(object_pairs_hook=once)


def row_of(text: str) -> dict[str, Any] | Unread:
    """The JSON object on a line, or why the line is none."""
    if not text.strip():
        return Unread("an empty line", text)
    try:
        text.encode()
        row = _ONCE.decode(text)
    except UnicodeEncodeError:
        return Unread("not UTF-8 text", text)
    except Twice as error:
        return Unread(str(error), text)
    except RecursionError:
        return Unread(f"nested more than {DEEPEST} deep", text)
    except json.JSONDecodeError as error:
        return Unread(f"not JSON: {shorten(str(error), 80)}", text)
    except ValueError:
        return Unread("a number with too many digits", text)
    if not isinstance(row, dict):
        return Unread("not a JSON object", text)
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(row):
        return Unread(f"nested more than {DEEPEST} deep", text)
    return row


def _is_deep(value: object) -> bool:
    """Whether a value is nested too deeply to be written again."""
    layer = [value]
    for _ in range(DEEPEST):
        inner = [v.values() if isinstance(v, dict) else v for v in layer if isinstance(v, dict | list)]
        layer = [one for values in inner for one in values]
    return any(isinstance(v, dict | list) for v in layer)


def _parquet(path: Path) -> Rows:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadLog("reading Parquet needs pyarrow: pip install 'rewardspec[logs]'") from None
    try:
        table = pyarrow.parquet.ParquetFile(path).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise BadLog(f"{shown(path)} is not a readable Parquet file: {shorten(str(error), 80)}") from None
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadLog(f"{shown(path)} has two columns called `{shorten(twice)}`")
    if not table.num_rows:
        raise BadLog(f"{shown(path)} has no rollouts: it has no rows")
    columns: list[list[Any]] = []
    for name in names:
        try:
            columns.append(table.column(name).to_pylist())
        except (ValueError, OverflowError, ImportError, pyarrow.ArrowException) as error:
            raise BadLog(
                f"column `{shorten(name)}` of {shown(path)} cannot be read: {shorten(str(error), 80)}"
            ) from None
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    written = [f.name for f in table.schema if (f.metadata or {}).items() >= JSON_TEXT.items()]
    return Rows(path, [unfolded(row, written) for row in rows] if written else rows, table=table)


def unfolded(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any] | Unread:
    """A row with the JSON text of these columns parsed."""
    found = dict(row)
    for name in names:
        if row[name] is not None:
            try:
                found[name] = json.loads(row[name])
            except (ValueError, TypeError, RecursionError):
                return Unread(f"`{shorten(name)}` is marked as JSON text, but is not JSON", str(row))
    return found


def located(path: Path, problems: Sequence[tuple[int, str]], most: int = 8) -> str:
    """Problems of rows, one on each line: `file:row: reason`."""
    told = [f"{shown(path)}:{number}: {reason}" for number, reason in problems[:most]]
    more = len(problems) - len(told)
    return "\n".join([*told, *([f"and {more:,} more"] if more else [])])


def each_row(rows: Rows) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows that are rollouts, with their numbers."""
    return ((number, row) for number, row in enumerate(rows.rows, 1) if isinstance(row, dict))
