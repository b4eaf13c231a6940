"""The rows of a part of a file, measured: a function of the part alone, so that it can run in any process."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

from rewardspec.logs.columns import flat, group_id, group_key, held_as, step_key, step_of, values_of
from rewardspec.logs.names import Keys
from rewardspec.logs.parts import Part
from rewardspec.logs.rows import Unread
from rewardspec.scoring.packed import Packed, pack
from rewardspec.scoring.parquet import Kinds, kinds_of
from rewardspec.scoring.scorer import Scorer
from rewardspec.spec import Spec

LONGEST_GROUP = 64  # characters of a group's id that are kept; longer ones, such as whole prompts, are shortened

Outcome: TypeAlias = dict[str, Any] | str  # values by column, or the reason for none


@dataclass(frozen=True)
class Names:
    """The names in a file: of the group, of the step (None if there are none), and of columns of the spec.

    held: the columns that the spec reads and no function measures, by their names in the spec. scored: whether a
    function measures a completion.
    """

    group: str
    step: str | None
    held: Mapping[str, str]
    scored: bool

    @classmethod
    def of(cls, path: Path, spec: Spec, keys: Keys, group_by: str | None, prefix: str) -> Names:
        """The names among the keys of a file. Raises BadLog for those that are missing."""
        top, found = list(keys.top), list(keys.found)
        uses = spec.uses
        wanted = [name for name in spec.columns if name not in uses]
        held = held_as(path, spec, wanted, found, prefix, "reads and no reward function measures")
        return cls(group_key(path, top, found, group_by, held.values()), step_key(top), held, bool(uses))


@dataclass(frozen=True)
class RowRead:
    """What a row says of itself: its group, its step, and the columns that no function measures."""

    group: Hashable
    step: int | None
    values: Mapping[str, Any]


def read_row(spec: Spec, names: Names, row: Mapping[str, Any]) -> RowRead | str:
    """The row, or what is wrong with it."""
    row = flat(row)
    wrong: list[str] = []

    def told(name: str, make: Callable[..., Any], *given: object) -> Any:
        try:
            return make(*given, row.get(name))
        except ValueError as error:
            wrong.append(f"`{name}` {error}")
            return None

    group = told(names.group, group_id)
    step = told(names.step, step_of) if names.step else None
    values = {name: told(called, values_of, spec.program.columns[name]) for name, called in names.held.items()}
    if names.scored and row.get("completion") is None:
        wrong.append("there is no `completion`")
    return "; ".join(wrong) or RowRead(group, step, values)


def outcomes(scorer: Scorer, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """For each row the values that the reward functions measure, or the reason that there are none."""
    found = scorer.measure(rows)
    return [found.bad.get(i) or {name: values[i] for name, values in found.columns.items()} for i in range(len(rows))]


@dataclass
class Measured:
    """The measured rows of a part. Rows are indices in the part.

    bad: the reasons of bad rows. groups: their ids, None for bad rows. steps: -1 without. columns: held and measured.
    lines: of each row that was measured now, for the partial file. resumed: rows of an earlier run. stale: those that
    changed since. kinds: what the columns of JSON lines become in Parquet. asked, recalled: see
    `ComponentCache`.
    """

    first: int
    count: int
    keys: Keys
    bad: dict[int, str]
    groups: list[Hashable]
    steps: list[int]
    columns: dict[str, Packed]
    lines: list[str] = field(default_factory=list)
    resumed: int = 0
    stale: int = 0
    kinds: Kinds | None = None
    asked: int = 0
    recalled: int = 0


def measured(
    scorer: Scorer, names: Names, part: Part, before: Mapping[int, tuple[str, Outcome]] = {}, to_parquet: bool = False
) -> Measured:
    """The rows of a part, measured. Raises ScoringError.

    before: the digests and outcomes of an earlier run, by row. to_parquet: whether JSON lines become Parquet.
    """
    spec = scorer.spec
    rows, keys = part.rows(), Keys()
    digests = part.digests(rows)
    keys.add(rows)
    found = Measured(part.first, len(rows), keys, {}, [None] * len(rows), [-1] * len(rows), {})
    read: dict[int, RowRead] = {}
    known: dict[int, Outcome] = {}
    for i, row in enumerate(rows):
        one = row.reason if isinstance(row, Unread) else read_row(spec, names, row)
        if isinstance(one, str):
            found.bad[i] = one
        else:
            read[i] = one
        if i in before:
            digest, outcome = before[i]
            if digest != digests[i]:
                found.stale += 1
            elif i in read:
                known[i] = outcome
    found.resumed = len(known)
    new = [i for i in read if i not in known]
    given = [{**row, **read[i].values} for i in new if isinstance(row := rows[i], dict)]
    asked, recalled = _counts(scorer)
    results = dict(zip(new, outcomes(scorer, given) if given else [], strict=True))
    found.asked, found.recalled = _counts(scorer)[0] - asked, _counts(scorer)[1] - recalled
    found.lines = [
        json.dumps([part.first + i + 1, digests[i], outcome], separators=(",", ":")) + "\n"
        for i, outcome in results.items()
    ]
    every = known | results
    found.bad |= {i: outcome for i, outcome in every.items() if isinstance(outcome, str)}
    good = {i: outcome for i, outcome in every.items() if not isinstance(outcome, str)}
    for i in good:
        found.groups[i] = _short(read[i].group)
        step = read[i].step
        found.steps[i] = -1 if step is None else step
    for name in dict.fromkeys([*names.held, *scorer.names]):
        values = [
            None if i not in good else good[i][name] if name in scorer.names else read[i].values[name]
            for i in range(len(rows))
        ]
        found.columns[name] = pack(values, spec.program.columns[name].level.listed)
    if to_parquet and part.lines is not None:
        found.kinds = kinds_of([row for i in good if isinstance(row := rows[i], dict)])
    return found


def _counts(scorer: Scorer) -> tuple[int, int]:
    """How many values were asked for so far, and how many a cache had."""
    return (0, 0) if scorer.cache is None else (scorer.cache.asked, scorer.cache.recalled)


def _short(group: Hashable) -> Hashable:
    """A group's id; of a long one its beginning and a hash."""
    text = group[1] if isinstance(group, tuple) and len(group) == 2 else group
    if not isinstance(text, str) or len(text) <= LONGEST_GROUP:
        return group
    digest = blake2b(repr(group).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:24]}... ({digest})"
