"""The health of groups by the value of a column, such as the source or the difficulty of their prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardspec.logs.rows import BadLog
from rewardspec.runs.batches import Batch
from rewardspec.text.diagnostics import shorten

MOST_VALUES = 100
OTHERS = "(others)"


@dataclass(frozen=True)
class ByValue:
    """The groups whose first rollout has a value: as in `StepHealth`, over all steps. right: of rollouts."""

    value: object
    groups: int
    groups_without_signal: float
    all_right: float | None
    all_wrong: float | None
    right: float | None


class By:
    """Groups by the value of a column."""

    def __init__(self, column: str):
        self.column = column
        self.sums: dict[object, NDArray[np.float64]] = {}
        self.has_outcome = False

    def add(self, batch: Batch) -> None:
        if self.column not in batch.step.columns:
            known = ", ".join(f"`{shorten(name)}`" for name in list(batch.step.columns)[:12])
            raise BadLog(f"the log has no column `{shorten(self.column)}` to tell groups apart by; it has {known}")
        values = batch.step.columns[self.column]
        first = np.unique(batch.of, return_index=True)[1]
        rights, self.has_outcome = batch.rights, batch.rights is not None
        for group, row in enumerate(first):
            value = values[row]
            value = value if isinstance(value, str | int | float | bool | None) else repr(value)
            value = shorten(value) if isinstance(value, str) else value
            if value not in self.sums and len(self.sums) >= MOST_VALUES:
                value = OTHERS
            size, dead = batch.sizes[group], batch.dead[group]
            right = 0 if rights is None else rights[group]
            found = (1, dead, dead and right == size, dead and right == 0, right, size)
            self.sums[value] = self.sums.get(value, np.zeros(6)) + np.array(found, dtype=float)

    def found(self) -> tuple[ByValue, ...]:
        rows = []
        for value, (groups, dead, right, wrong, rights, rollouts) in self.sums.items():
            known: tuple[float | None, ...] = (None, None, None)
            if self.has_outcome:
                known = float(right / groups), float(wrong / groups), float(rights / rollouts)
            rows.append(ByValue(value, int(groups), float(dead / groups), *known))
        return tuple(sorted(rows, key=lambda row: -row.groups))
