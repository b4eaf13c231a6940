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

Row = tuple[dict[str, object], float, float]  # a rollout's columns, its advantage before and after


@dataclass(frozen=True)
class Logged:
    """What changes in the rollouts of a log, after the batch's normalisation.

    changed: rollouts whose advantage changes. signs: those whose advantage changes sign. groups_changed: groups with
    such a rollout. died, revived: groups whose advantages lose their spread, or gain one. moved: the mean magnitude of
    the change. example: the group that changes most, a row for each rollout.
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

    Advantages count as equal within 1e-5, relative to the larger of both if that is above 1.
    """
    logs = [read_log(path, spec, group_by, prefix) for spec in (before, after)]
    a, b = (advantages_on(spec, log, total_steps) for spec, log in zip((before, after), logs, strict=True))
    close = SAME_ADVANTAGE * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
    changed = np.abs(a - b) > close
    rows_of: dict[Hashable, list[int]] = {}
    for i, group in enumerate(logs[0].groups):
        rows_of.setdefault(group, []).append(i)
    alive = [[bool(np.ptp(x[rows]) > close[rows].max()) for rows in rows_of.values()] for x in (a, b)]
    columns = logs[0].columns | logs[1].columns
    most = max(rows_of.values(), key=lambda rows: np.abs(a - b)[rows].max())
    logged = Logged(
        rollouts=len(a),
        groups=len(rows_of),
        steps=len(dict.fromkeys(logs[0].steps)),
        changed=int(changed.sum()),
        signs=int((changed & (a * b < 0)).sum()),
        groups_changed=sum(bool(changed[rows].any()) for rows in rows_of.values()),
        died=sum(x and not y for x, y in zip(*alive, strict=True)),
        revived=sum(y and not x for x, y in zip(*alive, strict=True)),
        moved=float(np.abs(a - b).mean()),
        example=[({n: v[i] for n, v in columns.items()}, float(a[i]), float(b[i])) for i in most]
        if changed.any()
        else [],
    )
    return LogDifference(changes(before, after), logged)


def advantages_on(spec: Spec, log: Log, total_steps: int | None = None) -> NDArray[np.float64]:
    """The advantage of every rollout of a log, [N]; each step of the log is one batch. Raises BadLog."""
    level = spec.program.advantage.level
    if level.listed:
        raise BadLog(f"{spec.name} has an advantage for each {level}; logs are compared by those of rollouts")
    found = np.empty(len(log.steps))
    for rows, out in by_step(spec, log, total_steps):
        found[rows] = out.advantages.double().numpy()
    return found
