"""The steps of a run: rows of its files taken together by their step, one step in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import group_id, listed, step_of
from rewardspec.logs.format import PARQUET, Batches, Format, Head, Rollout, Row, number_in, text_of
from rewardspec.logs.records import records, schema_of
from rewardspec.logs.rows import BadLog, Unread, located
from rewardspec.logs.run import Call, Step
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.shown import shown

LARGEST = 2**18  # rollouts of a step: one is held in memory
MOST_PROBLEMS = 10_000
TEXTS = ("prompt", "completion")
UNLIKE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
)  # of reading what has another shape
_ABSENT = object()


@dataclass(frozen=True)
class Taken:
    """How the user asked to take rows: `columns`, new name to the name in the log, and `group_by`."""

    columns: Mapping[str, str]
    group_by: str | None


def looked_up(row: Row, name: str) -> Any:
    """The value under `score.acc`: a key of that name, or `acc` inside `score`; `_ABSENT` if there is none."""
    value: Any = row
    if name in row:
        return row[name]
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def rollouts_of(row: Row, path: Path, form: Format, taken: Taken) -> list[Rollout]:
    """The rollouts of a row, with the columns as the user named them. Raises ValueError with the reason."""
    try:
        return [_taken(rollout, row, taken) for rollout in form.read(row, path)]
    except UNLIKE as error:
        told = shorten(f"{type(error).__name__}: {error}", 80)
        raise ValueError(f"is no row of format {form.name}: {told}") from None


def _taken(rollout: Rollout, row: Row, taken: Taken) -> Rollout:
    values = rollout.values
    if taken.columns:
        _name(rollout, row, taken.columns)
    for text in TEXTS:
        if text in values and not isinstance(values[text], str):
            values[text] = text_of(values[text])
    if taken.group_by:
        value = looked_up(values, taken.group_by)
        value = looked_up(row, taken.group_by) if value is _ABSENT else value
        rollout.chosen = _told(taken.group_by, group_id, None if value is _ABSENT else value)
    return rollout


def _name(rollout: Rollout, row: Row, columns: Mapping[str, str]) -> None:
    values = rollout.values
    new = {}
    for name, source in columns.items():
        value = looked_up(values, source)
        if value is _ABSENT:
            value = looked_up(row, source)
        new[name] = None if value is _ABSENT else value
    for source in columns.values():
        values.pop(source, None)
    for name, value in new.items():
        if name == "step":
            rollout.step = _told(columns[name], step_of, value)
        elif name == "group":
            rollout.chosen = _told(columns[name], group_id, value)
        elif name == "advantage":
            rollout.advantage = number_in(new, name)
        else:
            values[name] = value


def _told(name: str, read: Callable[[object], Any], value: object) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"`{shorten(name)}` {error}") from None


def lacking(heads: Sequence[Head], form: Format, taken: Taken) -> list[str]:
    """Messages about columns that the user named and neither the first nor the last file has at its beginning."""
    rows: list[dict[str, Any]] = []
    for head in (heads[0], heads[-1]):
        for row in head.rows:
            try:
                rows += [{**row, **rollout.values} for rollout in form.read(row, head.path)]
            except (ValueError, *UNLIKE):
                continue
    if not rows:
        return []
    keys = list(dict.fromkeys(key for row in rows for key in row))
    named = list(taken.columns.values())
    if taken.group_by and taken.group_by not in taken.columns:
        named.append(taken.group_by)
    problems = []
    for name in named:
        if all(looked_up(row, name) is _ABSENT for row in rows):
            near = did_you_mean(name, keys)
            help = f" ({near})" if near else ""
            problems.append(f"{shown(heads[0].path)} has no column `{shorten(name)}`{help}; it has {listed(keys)}")
    return problems


def read_steps(heads: Sequence[Head], form: Format, taken: Taken, columns: Sequence[str]) -> Iterator[Step]:
    """The steps of files in order, those of one number together. Raises BadLog, OSError."""
    return steps_of(merged(heads, form, taken), form, columns)


def steps_of(batches: Batches, form: Format, columns: Sequence[str]) -> Iterator[Step]:
    """Batches as steps. columns: names that all of them have. Raises BadLog, OSError."""
    for batch in form.settle(batches):
        call = form.call(schema_of(batch[0].place[0])) if form.alone else None
        yield _step(batch, columns, call)


def _step(batch: Sequence[Rollout], columns: Sequence[str], call: Call | None) -> Step:
    names = dict.fromkeys(columns)
    for rollout in batch:
        names.update(dict.fromkeys(rollout.values))
    groups = [rollout.group if rollout.chosen is None else rollout.chosen for rollout in batch]
    problems = [
        (rollout.place, "its group is missing") for rollout, group in zip(batch, groups, strict=True) if group is None
    ]
    if problems:
        raise BadLog(_all(problems))
    known = [rollout.advantage for rollout in batch]
    advantages = known if any(one is not None for one in known) else None
    return Step(batch[0].step, groups, Columns(batch, names), advantages, [rollout.place for rollout in batch], call)


class Columns(Mapping[str, Sequence[Any]]):
    """Rollouts as columns, each made when it is asked for: rows can have keys that no other row has."""

    def __init__(self, batch: Sequence[Rollout], names: Mapping[str, None]):
        self._rows, self._names = [rollout.values for rollout in batch], names
        self._made: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = [_present(row.get(name)) for row in self._rows]
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _present(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _all(problems: Sequence[tuple[tuple[Path, int], str]]) -> str:
    by_path: dict[Path, list[tuple[int, str]]] = {}
    for (path, number), reason in problems:
        by_path.setdefault(path, []).append((number, reason))
    return "\n".join(located(path, told) for path, told in by_path.items())


def merged(heads: Sequence[Head], form: Format, taken: Taken) -> Iterator[list[Rollout]]:
    """Batches of all files by step; a file is opened when its first step is due. Files without steps: one each."""
    if form.alone:
        for head in heads:
            yield from batches_of(head, form, taken)
        return
    due: list[tuple[int, int]] = []
    for place, head in enumerate(heads):
        if head.first is None:
            yield from batches_of(head, form, taken)
        else:
            heapq.heappush(due, (head.first, place))
    running: dict[int, tuple[list[Rollout], Iterator[list[Rollout]]]] = {}
    while due:
        step = due[0][0]
        batch: list[Rollout] = []
        parts: list[int] = []
        while due and due[0][0] == step:
            place = heapq.heappop(due)[1]
            part, rest = running.pop(place, (None, None))
            if rest is None:
                rest = batches_of(heads[place], form, taken)
                part = next(rest, None)
            if part is None:
                continue
            assert part[0].step is not None, "a file has steps in all its rows or in none"
            if part[0].step != step:  # its first rows could not be read when the run was opened
                running[place] = part, rest
                heapq.heappush(due, (part[0].step, place))
                continue
            batch += part
            parts.append(place)
            following = next(rest, None)
            if following is not None:
                assert following[0].step is not None, "as above"
                running[place] = following, rest
                heapq.heappush(due, (following[0].step, place))
        if len(parts) > 1 and not form.sharded:
            one, other = (shown(heads[place].path) for place in parts[:2])
            raise BadLog(f"step {step} is in {one} and in {other}: {form.apart}")
        if len(batch) > LARGEST:
            raise BadLog(_too_large(heads[parts[0]].path, step))
        if batch:
            yield batch


def batches_of(head: Head, form: Format, taken: Taken) -> Iterator[list[Rollout]]:
    """The batches of one file, whose steps rise. Raises BadLog with everything that is wrong in the file."""
    problems: list[tuple[int, str]] = []
    batch: list[Rollout] = []
    stepped: bool | None = None
    for number, row in records(head.path, head.kind, since=head.since):
        try:
            if isinstance(row, Unread):
                raise ValueError(row.reason)
            found = rollouts_of(row, head.path, form, taken)
        except ValueError as error:
            problems.append((number, str(error)))
            batch = []
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        for rollout in found:
            rollout.place = (head.path, rollout.place[1] or number)
            if stepped is None:
                stepped = rollout.step is not None
            if stepped != (rollout.step is not None):
                problems.append(
                    (
                        number,
                        "has no step, and other rows have one"
                        if stepped
                        else "has a step, and rows before it have none",
                    )
                )
                continue
            if problems:
                continue
            if batch and rollout.step is not None and rollout.step != batch[0].step:
                if rollout.step < (batch[0].step or 0):
                    raise BadLog(_unsorted(head, form, number, rollout.step, batch[0].step))
                yield batch
                batch = []
            if len(batch) == LARGEST:
                raise BadLog(_too_large(head.path, rollout.step))
            batch.append(rollout)
    if problems:
        raise BadLog(located(head.path, problems))
    if batch:
        yield batch


def _unsorted(head: Head, form: Format, number: int, step: int, before: int | None) -> str:
    name = head.path.name
    told = f"{shown(head.path)}:{number}: step {step} comes after step {before}"
    if not form.sharded:
        return f"{told}: a run that was started again appended to the log of another; split the file before this row"
    if head.kind == PARQUET:
        how = f"pandas.read_parquet('{name}').sort_values('step', kind='stable').to_parquet('sorted.parquet')"
    else:
        how = f"jq -cs 'sort_by(.step)[]' {name} > sorted.jsonl"
    return f"{told}, and one step is read at a time: sort the file by step: `{shown(how)}`"


def _too_large(path: Path, step: int | None) -> str:
    if step is None:
        return (
            f"{shown(path)} has no steps and more than {LARGEST:,} rollouts, and one step is held in memory: "
            "name the column of its steps: --columns step=NAME"
        )
    return f"{shown(path)}: step {step} has more than {LARGEST:,} rollouts, and one step is held in memory"
