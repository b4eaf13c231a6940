"""Measured rows brought together by group, and the advantages of each share of them, wherever it is computed.

Pure functions: `scoring/ray.py` runs them on many machines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from rewardspec.scoring.advantages import advantages
from rewardspec.scoring.measure import Measured
from rewardspec.scoring.moments import InParts, Moment, NotInParts, merge
from rewardspec.scoring.packed import Packed, Places, join, pack, taken
from rewardspec.scoring.table import Table
from rewardspec.spec import Spec

# what has to be in one place: groups; groups, with moments of the batch from all places; steps; all rows
Together = Literal["groups", "moments", "steps", "all"]


def together(spec: Spec, stepped: bool) -> Together:
    """What a spec needs in one place. stepped: whether rows have steps."""
    if spec.program.states:
        return "all"
    if "batch" not in spec.needs:
        return "groups"
    try:
        InParts(spec)
    except NotInParts:
        return "steps" if stepped else "all"
    return "moments"


@dataclass(frozen=True)
class Rows:
    """Good rows, N of them. pieces, places: [N] where each is from. groups: [N] ids. steps: [N], -1 without."""

    pieces: Places
    places: Places
    groups: Sequence[Hashable]
    steps: Places
    columns: Mapping[str, Packed]

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def of(cls, piece: int, found: Measured) -> Rows:
        """The good rows of a piece."""
        places = np.array([i for i in range(found.count) if i not in found.bad], np.int64)
        steps = np.array(found.steps, np.int64)
        every = cls(np.full(found.count, piece), np.arange(found.count), found.groups, steps, found.columns)
        return every.chosen(places)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows, in the order in which they are in the input."""
        parts = sorted((one for one in parts if len(one)), key=lambda one: int(one.pieces[0]))
        if not parts:
            none = np.empty(0, np.int64)
            return cls(none, none, [], none, {})
        columns = {name: join([one.columns[name] for one in parts]) for name in parts[0].columns}
        pieces, places, steps = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("pieces", "places", "steps")
        )
        return cls(pieces, places, [group for one in parts for group in one.groups], steps, columns)

    def chosen(self, rows: Places) -> Rows:
        columns = {name: taken(column, rows) for name, column in self.columns.items()}
        groups = [self.groups[i] for i in rows.tolist()]
        return Rows(self.pieces[rows], self.places[rows], groups, self.steps[rows], columns)

    def shares(self, how: Together, count: int) -> list[Rows]:
        """These rows in `count` shares. What belongs together is in the same share, whichever rows are here."""
        if count == 1:
            return [self]
        keys = list[tuple[int, Hashable]](
            zip(self.steps.tolist(), self.groups if how != "steps" else [None] * len(self), strict=True)
        )
        numbers = {key: _number(key) % count for key in set(keys)}
        of = np.array([numbers[key] for key in keys], np.int64)
        return [self.chosen(np.flatnonzero(of == i)) for i in range(count)]

    def table(self) -> Table:
        known: dict[Hashable, int] = {}
        groups = np.array([known.setdefault(group, len(known)) for group in self.groups], np.int64)
        return Table(np.ones(len(self), np.bool_), {}, groups, list(known), self.steps, self.columns)


@dataclass(frozen=True)
class Answers:
    """The advantages of rows, and the reasons of those that the spec refuses, by index. groups: how many there are."""

    pieces: Places
    places: Places
    values: Packed
    refused: Mapping[int, str]
    groups: int

    def of(self, pieces: Sequence[int]) -> Answers:
        """Those of some pieces; groups are not counted."""
        rows = np.flatnonzero(np.isin(self.pieces, pieces))
        refused = {new: self.refused[old] for new, old in enumerate(rows.tolist()) if old in self.refused}
        return Answers(self.pieces[rows], self.places[rows], taken(self.values, rows), refused, 0)


def whole(spec: Spec, rows: Rows, total_steps: int | None) -> Answers:
    """The advantages of a share that has all that its rows depend on. Raises BadLog."""
    table = rows.table()
    values = advantages(spec, table, total_steps)
    groups = len(set(zip(rows.steps[table.good].tolist(), table.groups[table.good].tolist(), strict=True)))
    return Answers(rows.pieces, rows.places, values, table.bad, groups)


Known = dict[int, dict[str, float]]  # the values of the batch's reductions, by step


def moments(spec: Spec, rows: Rows, stage: int, known: Known, total_steps: int | None) -> dict[int, dict[str, Moment]]:
    """What a share adds to the moments of each step. Raises RolloutError."""
    parts = InParts(spec)
    return {
        step: parts.moments(stage, here.columns, here.table().groups, known.get(step, {}), **moment)
        for step, here, moment in _steps(rows, total_steps)
    }


def merged(spec: Spec, stage: int, shares: Sequence[Mapping[int, Mapping[str, Moment]]], known: Known) -> Known:
    """The values of a stage and those before, from the moments of all shares."""
    parts = InParts(spec)
    steps = sorted({step for share in shares for step in share})
    return {
        step: known.get(step, {}) | parts.values(stage, merge(share[step] for share in shares if step in share))
        for step in steps
    }


def applied(spec: Spec, rows: Rows, known: Known, total_steps: int | None) -> Answers:
    """The advantages of a share, given the values of all stages. Raises RolloutError."""
    parts = InParts(spec)
    out: list[Packed] = []
    order, groups = [], 0
    for step, here, moment in _steps(rows, total_steps):
        table = here.table()
        found = parts.advantages(here.columns, table.groups, known[step], **moment)
        listed = spec.program.advantage.level.listed
        out.append(pack(list(found.nested()), listed=True) if listed else found.advantages.double().numpy())
        order.append(np.flatnonzero(rows.steps == step))
        groups += len(table.ids)
    if not order:
        return Answers(rows.pieces, rows.places, np.empty(0), {}, 0)
    places = np.argsort(np.concatenate(order))
    return Answers(rows.pieces, rows.places, taken(join(out), places), {}, groups)


def _steps(rows: Rows, total_steps: int | None) -> Iterable[tuple[int, Rows, dict[str, Any]]]:
    for step in np.unique(rows.steps).tolist():
        here = rows.chosen(np.flatnonzero(rows.steps == step))
        yield step, here, {"step": None if step < 0 else step, "total_steps": total_steps}


def _number(key: tuple[int, Hashable]) -> int:
    """A number that is the same in every process, as `hash` of texts is not; equal ids have equal numbers."""
    step, group = key
    if isinstance(group, float) and group.is_integer():
        group = int(group)  # 1 and 1.0 are one group
    return int.from_bytes(blake2b(repr((step, group)).encode("utf-8", "surrogatepass"), digest_size=8).digest())
