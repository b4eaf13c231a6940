"""The completions in a file, scored by the reward functions of a spec, with their advantages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardspec.function import Result
from rewardspec.logs.columns import PREFIX, flat, group_id, group_key, held_as, listed, step_key, step_of, values_of
from rewardspec.logs.outputs import beside, check_paths, held
from rewardspec.logs.rows import BadLog, Rows, Unread, each_row, read_rows
from rewardspec.scoring.partial import SUFFIX, Outcome, Partial
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.scorer import Scorer
from rewardspec.scoring.versions import versions
from rewardspec.scoring.writing import check_format, write_aside, write_scored
from rewardspec.spec import Spec, compile
from rewardspec.text.shown import shown

CHUNK = 256  # rows that are measured between two writes of the partial file
ASIDE = ".bad.jsonl"  # the suffix of the file of bad rows
ADVANTAGE = "advantage"  # a reserved name: no column of a spec has it


@dataclass
class Summary:
    """The outcome of scoring a file.

    aside: the file of bad rows. scored, resumed: rows in all, and rows whose rewards an earlier run had measured. bad:
    (row number from 1, reason). missing: rows without a value, or without that of an item, by column. mean: of each
    column, over the items of lists.
    """

    aside: Path
    scored: int = 0
    resumed: int = 0
    changed: int = 0  # rows that changed since an earlier run
    bad: list[tuple[int, str]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)
    groups: int = 0


@dataclass(frozen=True)
class Read:
    """The data of the good rows in the file, by row index.

    held: the names in the file of columns that no function measures. values: of these columns.
    """

    held: dict[str, str]
    values: dict[int, Mapping[str, object]]
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
    """Score the rows of `source` (JSON lines or Parquet) into `output` (in the format of its suffix).

    `{"group": 1, "completion": "..."}` becomes `{..., "scored/correct": 1.0, "scored/advantage": 0.7}`: each row keeps
    its data and gets, with `prefix`, the columns that reward functions measure and its advantage among the good rows of
    its group. Bad rows go to `OUTPUT.bad.jsonl` with their numbers and reasons. Measured rewards are saved next to
    `output` until the run ends; another run of the same spec and functions resumes from them, for rows that have not
    changed.

    restart: measure all rows again. progress: called with the number of rows done, and of all rows.
    Raises BadPath, BadLog, ScoringError, OSError.
    """
    scorer = Scorer(spec, allow_python)
    reads = {"spec": Path(spec.source.name), "source": source}
    suffixes = {SUFFIX: "the rewards so far", ASIDE: "the file of bad rows"}
    output = check_paths(output, reads, suffixes)
    check_format(output)
    with held(output):
        rows = read_rows(source)
        _check_names(rows, scorer.names, prefix)
        bad: dict[int, str] = {i: row.reason for i, row in enumerate(rows.rows) if isinstance(row, Unread)}
        read = _read(spec, rows, group_by, prefix, bad)
        heading = {"spec": spec.fingerprint, **versions(scorer), **{f"column {n}": c for n, c in read.held.items()}}
        columns = {name: spec.program.columns[name].level.listed for name in scorer.names}
        partial = Partial(output, heading, rows.digests(), columns, restart)
        with closing(partial):
            _measure(scorer, rows, read, partial, progress)
        outcomes = {i: partial.outcomes[i] for i in read.groups}
        bad |= {i: outcome for i, outcome in outcomes.items() if isinstance(outcome, str)}
        measured = {i: outcome for i, outcome in outcomes.items() if not isinstance(outcome, str)}
        summary = Summary(beside(output, ASIDE), resumed=partial.resumed, changed=partial.stale)
        try:
            advantages = _advantages(spec, read, measured, bad, total_steps)
        except BadLog as error:  # rewards may have taken hours: keep them
            places = sorted(measured)
            write_aside(summary.aside, rows, _reasons(bad))
            write_scored(output, rows, places, _added(prefix, scorer.names, measured, places))
            aside = f", and {len(bad)} bad rows are in {shown(summary.aside)}" if bad else ""
            raise BadLog(f"{error}\nthe rewards without advantages are in {shown(output)}{aside}") from None
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
        items = [values if isinstance(values, list) else [values] for values in added[prefix + name]]
        present = [value for values in items for value in values if value is not None]
        summary.missing[name] = sum(None in values for values in items)
        summary.mean[name] = sum(present) / len(present) if present else float("nan")
    return summary


def _check_names(rows: Rows, names: Sequence[str], prefix: str) -> None:
    """Raise BadLog if a column that is added would overwrite one in the file."""
    found = {str(name) for name in rows.columns}
    taken = [prefix + name for name in (*names, ADVANTAGE) if prefix + name in found]
    if taken:
        raise BadLog(
            f"{shown(rows.path)} already has {listed(taken)}, which would be overwritten: choose another prefix, "
            "such as --prefix again/"
        )


def _read(spec: Spec, rows: Rows, group_by: str | None, prefix: str, bad: dict[int, str]) -> Read:
    """The groups, steps and columns in the file; rows with wrong ones go to `bad`. Raises BadLog."""
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
        values = {name: told(called, values_of, spec.program.columns[name]) for name, called in held.items()}
        if spec.uses and row.get("completion") is None:
            wrong.append("there is no `completion`")
        if wrong:
            bad[i] = "; ".join(wrong)
        else:
            read.groups[i], read.steps[i], read.values[i] = group, moment, values
    return read


def _measure(scorer: Scorer, rows: Rows, read: Read, partial: Partial, progress: Callable[[int, int], None]) -> None:
    """Measure the good rows that are not measured yet, a chunk at a time."""
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
    """The measured values of each row, or the reason that there are none."""
    found = scorer.measure(rows)
    for i in range(len(rows)):
        yield found.bad.get(i) or {name: values[i] for name, values in found.columns.items()}


def _reasons(bad: Mapping[int, str]) -> list[tuple[int, str]]:
    """(row number, reason) of bad rows."""
    return [(i + 1, reason) for i, reason in sorted(bad.items())]


def _added(
    prefix: str, names: Sequence[str], measured: Mapping[int, Mapping[str, Any]], places: Sequence[int]
) -> dict[str, Any]:
    """The measured columns of these rows, under their prefixed names."""
    return {prefix + name: [measured[i][name] for i in places] for name in names}


def _advantages(
    spec: Spec, read: Read, measured: Mapping[int, Mapping[str, Any]], bad: dict[int, str], total_steps: int | None
) -> dict[int, Any]:
    """The advantage of every row, a list of them where it has a list's level, step by step.

    Rows that the spec refuses go to `bad`. Raises BadLog.

    State is carried through the steps in their order. It follows from the measured rewards, so a resumed run has it.
    """
    fn = compile(spec)
    batches: dict[int | None, list[int]] = {}
    for i in measured:
        batches.setdefault(read.steps[i], []).append(i)
    last = total_steps or max((step for step in batches if step is not None), default=None)
    found: dict[int, Any] = {}

    state = fn.initial_state()
    order = batches if state is None else sorted(batches, key=lambda step: -1 if step is None else step)

    def computed(step: int | None, chosen: list[int], groups: list[Any] | None = None) -> Result:
        columns = {
            name: [(read.values[i] if name in read.held else measured[i])[name] for i in chosen]
            for name in spec.columns
        }
        return fn(columns, groups or [read.groups[i] for i in chosen], step=step, total_steps=last, state=state)

    refused: dict[int, str] = {}
    for step in order:
        chosen = left = batches[step]
        try:
            out = computed(step, chosen)
        except ValueError as error:
            first, here = error, {i: reason for i in chosen if (reason := _refusal(computed, step, i))}
            if not here:
                raise _without_advantages(error) from None
            refused |= here
            left = [i for i in chosen if i not in refused]
            if not left:
                continue
            try:
                out = computed(step, left)
            except ValueError as error:
                raise _without_advantages(error) from None
        found |= dict(zip(left, out.nested(), strict=True))
        state = out.state
    if refused and not found:
        raise _without_advantages(first)
    bad |= refused
    return found


def _refusal(computed: Callable[..., Result], step: int | None, row: int) -> str:
    """Why a spec refuses a row, tried alone; empty if it does not."""
    try:
        computed(step, [row], [0])  # group 0, so that the pattern below finds it
    except ValueError as error:
        said = re.sub(r" at rollout 0 of group 0\b", "", str(error))
        return re.sub(r" at (\w+) (\d+) of rollout 0 of group 0\b", _counted, said)
    return ""


def _counted(item: re.Match[str]) -> str:
    """An item of a row, counted from 1 as rows are."""
    return f" at {item[1]} {int(item[2]) + 1}"


def _without_advantages(error: ValueError) -> BadLog:
    return BadLog(f"the rewards were measured, but the advantages cannot be computed: {error}")
