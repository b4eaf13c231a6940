"""The health of groups by the value of a column, such as the source or the difficulty of their prompts."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from rewardspec.logs.rows import BadLog
from rewardspec.runs.batches import Batch
from rewardspec.text.diagnostics import shorten

MOST_VALUES = 100
OTHERS = "others", None  # the key of the values after those
LONGEST = 200  # characters of a text that is kept whole


@dataclass(frozen=True)
class ByValue:
    """The groups whose first rollout has a value: as in `StepHealth`, over all steps. right: of rollouts."""

    value: object
    groups: int
    groups_without_signal: float
    all_right: float | None
    all_wrong: float | None
    right: float | None


def _key(value: object) -> tuple[str, object]:
    """What tells values apart: `true`, 1 and "1" are three, 1 and 1.0 are one, and long texts differ in any place."""
    if isinstance(value, bool | None):
        return "truth", value
    if isinstance(value, int | float):
        return "number", value
    text = value if isinstance(value, str) else repr(value)
    whole = len(text) <= LONGEST
    return "text", text if whole else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class By:
    """Groups by the value of a column."""

    def __init__(self, column: str):
        self.column = column
        self.sums: dict[tuple[str, object], NDArray[np.float64]] = {}
        self.values: dict[tuple[str, object], object] = {OTHERS: "(others)"}
        self.has_outcome = False

    def add(self, batch: Batch) -> None:
        if self.column not in batch.step.columns:
            known = ", ".join(f"`{shorten(name)}`" for name in list(batch.step.columns)[:12])
            raise BadLog(f"the log has no column `{shorten(self.column)}` to tell groups apart by; it has {known}")
        values = batch.step.columns[self.column]
        first = np.unique(batch.of, return_index=True)[1]
        rights, self.has_outcome = batch.rights, batch.rights is not None
        for group, row in enumerate(first):
            value, key = values[row], _key(values[row])
            if key not in self.sums and len(self.sums) >= MOST_VALUES:
                key = OTHERS
            elif key not in self.values:
                plain = isinstance(value, int | None) or (isinstance(value, float) and isfinite(value))
                self.values[key] = value if plain else shorten(str(value))
            size, dead = batch.sizes[group], batch.dead[group]
            right = 0 if rights is None else rights[group]
            found = (1, dead, dead and right == size, dead and right == 0, right, size)
            self.sums[key] = self.sums.get(key, np.zeros(6)) + np.array(found, dtype=float)

    def found(self) -> tuple[ByValue, ...]:
        rows = []
        for key, (groups, dead, right, wrong, rights, rollouts) in self.sums.items():
            known: tuple[float | None, ...] = (None, None, None)
            if self.has_outcome:
                known = float(right / groups), float(wrong / groups), float(rights / rollouts)
            rows.append(ByValue(self.values[key], int(groups), float(dead / groups), *known))
        return tuple(sorted(rows, key=lambda row: -row.groups))
