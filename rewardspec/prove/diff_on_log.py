"""How two specs differ on the rollouts of a log."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardspec.logs.columns import PREFIX
from rewardspec.logs.rows import BadLog
from rewardspec.prove.changes import Change, changes
from rewardspec.prove.replay import Log, by_step, read_log
from rewardspec.spec import Spec

SAME_ADVANTAGE = 1e-5  # of advantages on a log, which are computed in float32

Shown = float | list[float]  # of list level a list
Row = tuple[dict[str, object], Shown, Shown]  # a rollout's columns, its advantage before and after


@dataclass(frozen=True)
class Logged:
    """What changes in the rollouts of a log, after the batch's normalisation.

    Where the items of a list have the advantages, a rollout changes as any of its items does.
    changed: rollouts whose advantage changes. signs: those whose advantage changes sign. groups_changed: groups with
    such a rollout. died, revived: groups whose advantages lose their spread, or gain one. moved: the mean magnitude of
    the change, of items if they have the advantages. example: the group that changes most, a row for each rollout.
    """

    rollouts: int
    groups: int
    steps: int
    changed: int
    signs: int
    groups_changed: int
    died: int
    revived: int
    moved: float
    example: list[Row]


@dataclass(frozen=True)
class LogDifference:
    """How two specs differ: their declarations, and the advantages of the rollouts of a log."""

    changes: list[Change]
    logged: Logged

    def __repr__(self) -> str:
        return (
            f"<LogDifference: {len(self.changes)} changes; "
            f"other advantages for {self.logged.changed} of {self.logged.rollouts} rollouts>"
        )

    @property
    def is_none(self) -> bool:
        """Whether no difference was found."""
        return not self.changes and not self.logged.changed

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def difference_on_log(
    before: Spec,
    after: Spec,
    path: Path,
    group_by: str | None = None,
    total_steps: int | None = None,
    prefix: str = PREFIX,
) -> LogDifference:
    """How `after` differs from `before` on the rollouts of a log. Raises BadLog, OSError.

    Advantages count as equal within 1e-5, relative to the larger of both if that is above 1. One of a rollout is
    compared with those of its items; two lists cannot be compared.
    """
    lists = {spec.program.advantage.level for spec in (before, after) if spec.program.advantage.level.listed}
    if len(lists) > 1:
        one, other = sorted(map(str, lists))
        raise BadLog(f"one spec has an advantage for each {one}, the other for each {other}: they cannot be compared")
    logs = [read_log(path, spec, group_by, prefix) for spec in (before, after)]
    found = [advantages_on(spec, log, total_steps) for spec, log in zip((before, after), logs, strict=True)]
    a, b, rollout = _side_by_side(*found)
    close = SAME_ADVANTAGE * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
    changed = np.abs(a - b) > close
    rows_of: dict[Hashable, list[int]] = {group: [] for group in logs[0].groups}
    for row, i in enumerate(rollout.tolist()):
        rows_of[logs[0].groups[i]].append(row)
    filled = {group: rows for group, rows in rows_of.items() if rows}  # not of empty lists alone
    alive = [[bool(np.ptp(x[rows]) > close[rows].max()) for rows in filled.values()] for x in (a, b)]
    example: list[Row] = []
    if changed.any():
        most = max(filled, key=lambda group: np.abs(a - b)[filled[group]].max())
        columns = logs[0].columns | logs[1].columns
        places = [i for i, group in enumerate(logs[0].groups) if group == most]
        example = [({n: v[i] for n, v in columns.items()}, _shown(found[0][i]), _shown(found[1][i])) for i in places]
    logged = Logged(
        rollouts=len(logs[0].groups),
        groups=len(rows_of),
        steps=len(dict.fromkeys(logs[0].steps)),
        changed=len(np.unique(rollout[changed])),
        signs=len(np.unique(rollout[changed & (a * b < 0)])),
        groups_changed=sum(bool(changed[rows].any()) for rows in filled.values()),
        died=sum(x and not y for x, y in zip(*alive, strict=True)),
        revived=sum(y and not x for x, y in zip(*alive, strict=True)),
        moved=float(np.abs(a - b).mean()) if len(a) else 0.0,
        example=example,
    )
    return LogDifference(changes(before, after), logged)


Advantages = NDArray[np.float64] | list[NDArray[np.float64]]  # [N], or those of each rollout's items


def advantages_on(spec: Spec, log: Log, total_steps: int | None = None) -> Advantages:
    """The advantage of every rollout of a log, [N], or of its items, N arrays; a step is a batch. Raises BadLog."""
    level = spec.program.advantage.level
    whole, parts = np.empty(len(log.steps)), [np.empty(0)] * len(log.steps)
    for rows, out in by_step(spec, log, total_steps):
        values = out.advantages.double().numpy()
        if not level.listed:
            whole[rows] = values
            continue
        ends = np.cumsum(out.lengths[level.name].numpy())
        for row, part in zip(rows, np.split(values, ends[:-1]), strict=True):
            parts[row] = part
    return parts if level.listed else whole


def _side_by_side(
    before: Advantages, after: Advantages
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Both as [M] values, and which rollout each is of: items if either has them, and rollouts else."""
    listed = next((found for found in (before, after) if isinstance(found, list)), None)
    counts = np.ones(len(before), dtype=np.int64) if listed is None else np.array([len(part) for part in listed])

    def flat(found: Advantages) -> NDArray[np.float64]:
        return np.concatenate(found) if isinstance(found, list) else np.repeat(found, counts)

    return flat(before), flat(after), np.repeat(np.arange(len(counts)), counts)


def _shown(advantage: float | NDArray[np.float64]) -> Shown:
    return advantage.tolist() if isinstance(advantage, np.ndarray) else float(advantage)
