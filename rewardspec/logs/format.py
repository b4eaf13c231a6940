"""A format of logged rollouts: how files of it are recognised, and how a row becomes rollouts."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import step_of
from rewardspec.logs.run import Advantage, Call, Trained
from rewardspec.text.diagnostics import shorten

Row = Mapping[str, Any]
PARQUET, LINES, CSV, ARROW, TORCH = "Parquet", "JSON lines", "CSV", "Arrow", "a torch file"


@dataclass(frozen=True)
class Mark:
    """A place in a file of lines: the number of a line, from 1, the byte where it begins, and the bytes before it."""

    line: int = 1
    byte: int = 0
    before: bytes = b""


START = Mark()


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    kind: `PARQUET`, `LINES`, `CSV`, `ARROW` or `TORCH`, known by its content.
    rows: the first rows that are rollouts. columns: their keys; of a table those of its schema.
    metadata: of a Parquet file.
    problem: why no row could be read.
    fits: the formats that it matches. first: the step of the first rollout. since: where its rows are read from, of
    JSON lines.
    """

    path: Path
    kind: str
    rows: Sequence[Row]
    columns: Sequence[str]
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    problem: str | None = None
    fits: tuple[str, ...] = ()
    first: int | None = None
    since: Mark = START

    def has(self, *names: str) -> bool:
        return all(name in self.columns for name in names)


@dataclass(slots=True)
class Rollout:
    """One rollout, as a format reads it; `place` and `chosen` are set by those who read files.

    group: what the rollouts of one prompt share; None if the log does not say.
    chosen: the group by a column that the user named.
    """

    values: dict[str, Any]
    group: Hashable | None = None
    step: int | None = None
    advantage: Advantage = None
    place: tuple[Path, int] = (Path(), 0)
    chosen: Hashable | None = None


Batches = Iterator[list[Rollout]]


def _as_they_are(batches: Batches) -> Batches:
    return batches


@dataclass(frozen=True)
class Format:
    """How one trainer logs rollouts. A file of `formats/` has one, and says which file of the trainer writes it.

    marks: what `matches` looks for, for messages.
    kinds: of files.
    matches: whether the beginning of a file is of this format, by its content.
    read: the rollouts of a row. Raises ValueError with the reason if it is none.
    lost: what such a file does not hold, a sentence each; `groups` is not among them.
    groups: where groups come from, and what is not known of them; None if the log has none.
    settle: changes the batches of a run, in the order of steps; groups can come from here.
    survey: sentences about whole files, which a look at their beginnings does not give.
    choose: the files that count, in their order, and sentences about the others. Raises BadLog.
    offers: columns whose equal values make a group, the best first; the user says so.
    apart: how to name one of several logs that are in one folder.
    sharded: a step may be in several files.
    alone: each file is one batch, in the order that `choose` gives.
    spec: what a file was trained under. Raises BadLog.
    call: how the batch of a file was computed, if each file is one. Raises BadLog.
    """

    name: str
    about: str
    marks: str
    kinds: tuple[str, ...]
    matches: Callable[[Head], bool]
    read: Callable[[Row, Path], Iterable[Rollout]]
    lost: Callable[[Head], Iterable[str]] = lambda head: ()
    groups: Callable[[Head], str | None] = lambda head: None
    settle: Callable[[Batches], Batches] = _as_they_are
    survey: Callable[[Sequence[Head]], Iterable[str]] = lambda heads: ()
    choose: Callable[[Sequence[Head]], tuple[Sequence[Head], Sequence[str]]] = lambda heads: (heads, ())
    offers: tuple[str, ...] = ("prompt",)
    apart: str = "name one of them, or one folder"
    sharded: bool = False
    alone: bool = False
    spec: Callable[[Head], Trained | None] = lambda head: None
    call: Callable[[Head], Call | None] = lambda head: None


def step_in(row: Row, key: str = "step") -> int:
    """The step of a row. Raises ValueError with the reason."""
    if key not in row:
        raise ValueError(f"has no `{key}`")
    try:
        return step_of(row[key])
    except ValueError as error:
        raise ValueError(f"`{key}` {error}") from None


def number_in(row: Row, key: str) -> float | None:
    """A number of a row; None if missing. Raises ValueError with the reason."""
    value = row.get(key)
    if value is None or value != value:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{key}` is {shorten(repr(value))}: it must be a number")
    return float(value)


def without(row: Row, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def under(values: dict[str, Any], where: str, inner: Any) -> None:
    """Put the values of a mapping beside others, under their own names; `where.name` if another has it."""
    if isinstance(inner, dict):
        for name, value in inner.items():
            values[str(name) if name not in values else f"{where}.{name}"] = value


def text_of(value: Any) -> str | None:
    """A prompt or a completion as text: of one message its content, of several `role: content`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, dict) and "role" in one for one in value):
        if len(value) == 1 and set(value[0]) <= {"role", "content"}:
            return _content(value[0].get("content"))
        return "\n\n".join(f"{one['role']}: {_said(one)}" for one in value)
    return json.dumps(value, ensure_ascii=False, default=repr)


def _said(message: Row) -> str:
    rest = {k: v for k, v in message.items() if k not in ("role", "content") and v}
    said = _content(message.get("content"))
    return (said + "\n" + json.dumps(rest, ensure_ascii=False, default=repr)).strip() if rest else said


def _content(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(
            str(part["text"]) if part.get("text") is not None else f"[{part.get('type')}]" for part in content
        )
    return json.dumps(content, ensure_ascii=False, default=repr)
