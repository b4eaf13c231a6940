"""Means, deviations and correlations of values that come in parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]


@dataclass
class Moments:
    """Of pairs (x, y) without missing values: their number, means, and sums of products of deviations.

    `add` merges a part by Chan's formula, so that a long run loses no digits.
    """

    count: int = 0
    mean: Numbers = field(default_factory=lambda: np.zeros(2))
    products: Numbers = field(default_factory=lambda: np.zeros((2, 2)))

    def add(self, x: Numbers, y: Numbers | None = None) -> None:
        """Add values, [N]; those that are NaN in either are left out."""
        pair = np.stack([x, x if y is None else y])
        pair = pair[:, ~np.isnan(pair).any(0)]
        n = pair.shape[1]
        if not n:
            return
        mean = pair.mean(1)
        apart, both = mean - self.mean, self.count + n
        own = pair - mean[:, None]
        self.products += own @ own.T + np.outer(apart, apart) * (self.count * n / both)
        self.mean = self.mean + apart * (n / both)
        self.count = both

    @property
    def std(self) -> float:
        """The standard deviation of x, divided by N; NaN of nothing."""
        return sqrt(max(self.products[0, 0] / self.count, 0.0)) if self.count else nan

    @property
    def correlation(self) -> float | None:
        """Pearson's r; None where x or y does not vary."""
        of = self.products[0, 0] * self.products[1, 1]
        size = np.abs(self.mean) * sqrt(self.count) * 1e-12
        if self.count < 2 or not of > 0 or (np.sqrt(np.diag(self.products)) <= size).any():
            return None
        return float(np.clip(self.products[0, 1] / sqrt(of), -1.0, 1.0))


def extremes(values: Numbers, of: NDArray[np.int64], count: int) -> tuple[Numbers, Numbers]:
    """The least and the greatest value of each group, [count]; inf and -inf of none. of: [N] the group of each."""
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, of, values)
    np.maximum.at(high, of, values)
    return low, high
