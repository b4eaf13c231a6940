"""A row of a file of rollouts, JSON lines or Parquet; a line that cannot be read is kept with the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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


def wrong_kind(head: bytes) -> str | None:
    """Why a file with these first bytes cannot be lines of UTF-8 text, with the fix; None if it can."""
    packed = next((kind for start, kind in PACKED.items() if head.startswith(start)), None)
    return f"is compressed ({packed}): unpack it first" if packed else unlike(head)


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


def no_lines(text: str) -> str:
    """What a text is if none of its lines is a JSON object, with the fix."""
    start = text.lstrip()[:1]
    if start == "[":
        return "is a JSON list, or has lists: each rollout must be an object on its own line (`jq -c '.[]'`)"
    if text.strip() == "{":
        return "has JSON objects over several lines: each rollout must be an object on one line (`jq -c .`)"
    if start != "{" and ("," in text or "\t" in text):
        return "looks like CSV: rollouts are read from JSON lines or Parquet"
    return "has no rollouts, which are JSON objects, one on each line"


def repeated(names: Sequence[str]) -> str | None:
    """The first of the names that is there more than once; None if they all differ."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


class Twice(ValueError):
    """A JSON object has a key twice, and a reader would lose one of the values."""


def once(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    """The `object_pairs_hook` of JSON objects whose keys differ. Raises Twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Twice(f"the key `{shorten(repeated([key for key, _ in pairs]) or '')}` appears twice")
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
