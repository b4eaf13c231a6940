"""Completions in a file, scored by the reward functions of a spec, with the advantages that come of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import PREFIX, flat, group_id, group_key, held_as, listed, step_key, step_of, value_of
from rewardspec.logs.outputs import beside, check_paths, held
from rewardspec.logs.rows import BadLog, Rows, Unread, each_row, read_rows
from rewardspec.scoring.partial import SUFFIX, Outcome, Partial
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.versions import versions
from rewardspec.scoring.writing import check_format, write_aside, write_scored
from rewardspec.spec import Spec, compile
from rewardspec.text.shown import shown

CHUNK = 256  # rows between two writes of what is done
ASIDE = ".bad.jsonl"  # of the rows that are left out
ADVANTAGE = "advantage"  # no column of a spec can be called so


@dataclass
class Summary:
    """What became of a file. `bad` holds (row, reason); rows count from 1, as lines do."""

    aside: Path
    scored: int = 0
    resumed: int = 0
    changed: int = 0  # rows of an earlier run that are others now
    bad: list[tuple[int, str]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)  # rows without a value, a column at a time
    mean: dict[str, float] = field(default_factory=dict)
    groups: int = 0


@dataclass(frozen=True)
class Read:
    """What the file itself says of its rows, by place: of those that are good so far."""

    held: dict[str, str]  # columns of the spec that no function measures, and what they are called
    values: dict[int, Mapping[str, object]]  # of these
    groups: dict[int, object]
    steps: dict[int, int | None]


def score(
    spec: Spec,
    source: Path,
    output: Path,
    group_by: str | None = None,
    total_steps: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    allow_python: Allowed = False,
    prefix: str = PREFIX,
    restart: bool = False,
) -> Summary:
    """Score the rows of `source` (JSON lines or Parquet) into `output` (by its suffix), and say what came of them.

    Every row keeps what it had, and gets, under names that begin with `prefix`, a value for each column of the spec
    that a function measures, and its `advantage` among the good rows of its group. Rows that cannot be scored go to
    `output` with `.bad.jsonl` behind its name, each with its number and the reason. What is measured is kept beside
    `output` until the end, and taken up again by the same spec and functions for the rows that are still the same;
    restart: measure all of them again. progress: called with how many rows are done, of how many.
    Raises BadPath, BadLog, ScoringError, OSError.
    """
    scorer = Scorer(spec, allow_python)
    reads = {"spec": Path(spec.source.name), "source": source}
    suffixes = {SUFFIX: "what is scored so far", ASIDE: "the rows that are left out"}
    output = check_paths(output, reads, suffixes)
    check_format(output)
    with held(output):
        rows = read_rows(source)
        _check_names(rows, scorer.names, prefix)
        bad: dict[int, str] = {i: row.reason for i, row in enumerate(rows.rows) if isinstance(row, Unread)}
        read = _read(spec, rows, group_by, prefix, bad)
        heading = {"spec": spec.fingerprint, **versions(scorer), **{f"column {n}": c for n, c in read.held.items()}}
        partial = Partial(output, heading, rows.digests(), scorer.names, restart)
        with closing(partial):
            _measure(scorer, rows, read, partial, progress)
        outcomes = {i: partial.outcomes[i] for i in read.groups}
        bad |= {i: outcome for i, outcome in outcomes.items() if isinstance(outcome, str)}
        measured = {i: outcome for i, outcome in outcomes.items() if not isinstance(outcome, str)}
        summary = Summary(beside(output, ASIDE), resumed=partial.resumed, changed=partial.stale)
        try:
            advantages = _advantages(spec, read, measured, bad, total_steps)
        except BadLog as error:  # what was measured may have cost hours: it is not thrown away
            places = sorted(measured)
            write_aside(summary.aside, rows, _reasons(bad))
            write_scored(output, rows, places, _added(prefix, scorer.names, measured, places))
            aside = f", and {len(bad)} rows left out in {shown(summary.aside)}" if bad else ""
            raise BadLog(f"{error}\nthe rewards alone are in {shown(output)}{aside}") from None
        places = sorted(advantages)
        added = _added(prefix, scorer.names, measured, places)
        summary.bad = _reasons(bad)
        write_aside(summary.aside, rows, summary.bad)
        if places:
            write_scored(output, rows, places, added | {prefix + ADVANTAGE: [advantages[i] for i in places]})
        partial.remove()
    summary.scored = len(places)
    summary.groups = len({(read.steps[i], read.groups[i]) for i in places})
    for name in scorer.names:
        present = [value for value in added[prefix + name] if value is not None]
        summary.missing[name] = len(places) - len(present)
        summary.mean[name] = sum(present) / len(present) if present else float("nan")
    return summary


def _check_names(rows: Rows, names: Sequence[str], prefix: str) -> None:
    """Raise BadLog where a row would lose what it has."""
    found = {str(name) for name in rows.columns}
    taken = [prefix + name for name in (*names, ADVANTAGE) if prefix + name in found]
    if taken:
        raise BadLog(
            f"{shown(rows.path)} has {listed(taken)} already, which would be written over: name a prefix of your own, "
            "such as --prefix again/"
        )


def _read(spec: Spec, rows: Rows, group_by: str | None, prefix: str, bad: dict[int, str]) -> Read:
    """Groups, steps and the columns that the file holds; rows where these are wrong go to `bad`. Raises BadLog."""
    flatted = {number - 1: flat(row) for number, row in each_row(rows)}
    found = list(dict.fromkeys(key for row in flatted.values() for key in row))
    names = [name for name in spec.columns if name not in spec.uses]
    held = held_as(rows, spec, names, found, prefix, "reads and no reward function measures")
    key, step = group_key(rows, found, group_by, held.values()), step_key(rows)
    read = Read(held, {}, {}, {})
    for i, row in flatted.items():
        wrong: list[str] = []

        def told(
            name: str,
            make: Callable[..., Any],
            *given: object,
            wrong: list[str] = wrong,
            row: Mapping[str, Any] = row,
        ) -> Any:
            try:
                return make(*given, row.get(name))
            except ValueError as error:
                wrong.append(f"`{name}` {error}")
                return None

        group = told(key, group_id)
        moment = told(step, step_of) if step else None
        values = {name: told(called, value_of, spec.program.columns[name]) for name, called in held.items()}
        if spec.uses and row.get("completion") is None:
            wrong.append("there is no `completion`")
        if wrong:
            bad[i] = "; ".join(wrong)
        else:
            read.groups[i], read.steps[i], read.values[i] = group, moment, values
    return read


def _measure(scorer: Scorer, rows: Rows, read: Read, partial: Partial, progress: Callable[[int, int], None]) -> None:
    """Every row that is good and not measured yet, a chunk at a time."""
    left = [i for i in read.groups if i not in partial.outcomes]
    done = len(read.groups) - len(left)
    for first in range(0, len(left), CHUNK):
        progress(done + first, len(read.groups))
        chunk = left[first : first + CHUNK]
        partial.add(
            dict(zip(chunk, _chunk(scorer, [{**_rollout(rows, i), **read.values[i]} for i in chunk]), strict=True))
        )
    progress(len(read.groups), len(read.groups))


def _rollout(rows: Rows, place: int) -> dict[str, Any]:
    row = rows.rows[place]
    assert isinstance(row, dict)  # others are `bad`
    return row


def _chunk(scorer: Scorer, rows: Sequence[dict[str, Any]]) -> Iterator[Outcome]:
    """For each row what was measured, or why it could not be."""
    found = scorer.measure(rows)
    for i in range(len(rows)):
        yield found.bad.get(i) or {name: values[i] for name, values in found.columns.items()}


def _reasons(bad: Mapping[int, str]) -> list[tuple[int, str]]:
    """Rows that are left out, by number."""
    return [(i + 1, reason) for i, reason in sorted(bad.items())]


def _added(
    prefix: str, names: Sequence[str], measured: Mapping[int, Mapping[str, Any]], places: Sequence[int]
) -> dict[str, Any]:
    """The columns of what was measured."""
    return {prefix + name: [measured[i][name] for i in places] for name in names}


def _advantages(
    spec: Spec, read: Read, measured: Mapping[int, Mapping[str, Any]], bad: dict[int, str], total_steps: int | None
) -> dict[int, float]:
    """The advantage of every row, step by step. Rows that a spec cannot take at all go to `bad`. Raises BadLog."""
    fn = compile(spec)
    batches: dict[int | None, list[int]] = {}
    for i in measured:
        batches.setdefault(read.steps[i], []).append(i)
    last = total_steps or max((step for step in batches if step is not None), default=None)
    found: dict[int, float] = {}

    def advantages(step: int | None, chosen: list[int], groups: list[Any] | None = None) -> list[float]:
        columns = {
            name: [(read.values[i] if name in read.held else measured[i])[name] for i in chosen]
            for name in spec.columns
        }
        groups = groups or [read.groups[i] for i in chosen]
        found: list[float] = fn(columns, groups, step=step, total_steps=last).advantages.tolist()
        return found

    refused: dict[int, str] = {}
    for step, chosen in batches.items():
        try:
            found |= dict(zip(chosen, advantages(step, chosen), strict=True))
        except ValueError as error:
            first, here = error, {i: reason for i in chosen if (reason := _refusal(advantages, step, i))}
            if not here:
                raise _without_advantages(error) from None
            refused |= here
            left = [i for i in chosen if i not in refused]
            try:
                found |= dict(zip(left, advantages(step, left), strict=True)) if left else {}
            except ValueError as error:
                raise _without_advantages(error) from None
    if refused and not found:
        raise _without_advantages(first)
    bad |= refused
    return found


def _refusal(advantages: Callable[..., list[float]], step: int | None, row: int) -> str:
    """Why a spec cannot take a row by itself; nothing where it can."""
    try:
        advantages(step, [row], [0])  # a group's own name can be any text
    except ValueError as error:
        return re.sub(r" at rollout 0 of group 0\b", "", str(error))
    return ""


def _without_advantages(error: ValueError) -> BadLog:
    return BadLog(f"the rewards are scored, but not their advantages: {error}")
