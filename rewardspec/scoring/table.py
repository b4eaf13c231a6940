"""What is kept of all rows of a file in memory: numbers. Their texts stay on disk, and are read again to be written."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rewardspec.scoring.measure import Measured
from rewardspec.scoring.packed import Packed, Places, join


@dataclass
class Table:
    """The rows of a file, by index. N rows.

    good: [N] whether a row has an outcome. bad: the reasons of the others. groups: [N] the number of the group, in the
    order in which they appear. ids: of the groups. steps: [N], -1 without. columns: held and measured, N values each.
    """

    good: NDArray[np.bool_]
    bad: dict[int, str]
    groups: Places
    ids: Sequence[Hashable]
    steps: Places
    columns: Mapping[str, Packed]

    def refuse(self, reasons: Mapping[int, str]) -> None:
        """Count these rows as bad."""
        self.bad |= reasons
        self.good[list(reasons)] = False


@dataclass
class Gathering:
    """Parts that become a table. resumed, stale, asked, recalled: see `Measured`."""

    resumed: int = 0
    stale: int = 0
    asked: int = 0
    recalled: int = 0
    _bad: dict[int, str] = field(default_factory=dict)
    _known: dict[Hashable, int] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)
    _groups: array[int] = field(default_factory=lambda: array("q"))
    _steps: array[int] = field(default_factory=lambda: array("q"))
    _columns: dict[str, list[Packed]] = field(default_factory=dict)

    found: bool = False  # whether a row has a key

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, part: Measured) -> None:
        self.resumed += part.resumed
        self.stale += part.stale
        self.asked += part.asked
        self.recalled += part.recalled
        self.found = self.found or bool(part.keys.top)
        known = self._known
        self._groups.extend([known.setdefault(group, len(known)) for group in part.groups])
        self._steps.extend(part.steps)
        for i, reason in part.bad.items():  # many rows can have one reason
            self._bad[part.first + i] = self._reasons.setdefault(reason, reason)
        for name, column in part.columns.items():
            self._columns.setdefault(name, []).append(column)

    def table(self) -> Table:
        """The table; the parts are let go."""
        good = np.ones(len(self._groups), np.bool_)
        good[list(self._bad)] = False
        columns = {name: join(self._columns.pop(name)) for name in list(self._columns)}
        groups, steps = (np.frombuffer(kept, np.int64) for kept in (self._groups, self._steps))
        return Table(good, dict(self._bad), groups, list(self._known), steps, columns)
