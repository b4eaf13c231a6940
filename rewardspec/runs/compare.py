"""One spec against another on the rollouts of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardspec.runs.audit import Best, Row
from rewardspec.runs.batches import Batch

MOST_PAIRED = 1024  # rollouts of a group whose order is compared: pairs are as many as its square
SAME = 1e-5  # of advantages that are computed in float32, relative to the larger where that is above 1


@dataclass(frozen=True)
class AgainstAnother:
    """What changes between the first spec, A, and the second, B, on the same rollouts.

    changed, sign_flips: the fraction of rollouts whose advantage changes, or changes sign. same_order: of the pairs of
    rollouts of a group, the fraction that A and B order alike (above, below or equal); None without pairs.
    Of a group of more than 1,024, as many rollouts are paired, evenly spaced. revived,
    killed: how many groups are dead under A and live under B, and the other way round. rollouts: the groups that
    change most.
    """

    changed: float
    sign_flips: float
    same_order: float | None
    revived: int
    killed: int
    rollouts: tuple[Row, ...]


class Comparison:
    """Two specs over the steps of a run."""

    def __init__(self) -> None:
        self.rollouts = self.changed = self.flips = self.pairs = self.alike = self.revived = self.killed = 0
        self.best = Best()

    def add(self, a: Batch, b: Batch, number: int) -> None:
        x, y = a.advantages, b.advantages
        close = SAME * np.maximum(1.0, np.maximum(np.abs(x), np.abs(y)))
        changed = np.abs(x - y) > close
        self.rollouts += len(x)
        self.changed += int(changed.sum())
        self.flips += int((changed & (x * y < 0)).sum())
        self.revived += int((a.dead & ~b.dead).sum())
        self.killed += int((~a.dead & b.dead).sum())
        order = np.argsort(a.of, kind="stable")
        for size in np.unique(a.sizes):
            rows = order[np.isin(a.of[order], np.flatnonzero(a.sizes == size))].reshape(-1, size)
            if size > MOST_PAIRED:
                rows, size = rows[:, np.linspace(0, size - 1, MOST_PAIRED).astype(int)], MOST_PAIRED
            for at in range(0, len(rows), max(1, 2**20 // size**2)):
                some = rows[at : at + max(1, 2**20 // size**2)]
                upper = np.triu_indices(size, 1)
                signs = [_signs(v[some], upper) for v in (x, y)]
                self.pairs += signs[0].size
                self.alike += int((signs[0] == signs[1]).sum())
        if changed.any():
            most = np.zeros(len(a.sizes))
            np.maximum.at(most, a.of, np.abs(x - y))
            for group in np.argsort(-most)[:3]:
                if most[group] > 0:
                    self.best.add(float(most[group]), a, number, int(group), other=b)

    def found(self) -> AgainstAnother:
        n = max(self.rollouts, 1)
        order = self.alike / self.pairs if self.pairs else None
        return AgainstAnother(self.changed / n, self.flips / n, order, self.revived, self.killed, self.best.rows)


def _signs(values: NDArray[Any], pairs: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
    """Which of each pair is above, [groups, pairs]: 1, 0 or -1."""
    one, other = values[:, pairs[0]], values[:, pairs[1]]
    apart = one - other
    close = SAME * np.maximum(1.0, np.maximum(np.abs(one), np.abs(other)))
    return np.where(np.abs(apart) <= close, 0, np.sign(apart))
