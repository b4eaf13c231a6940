"""What each component was over a run, and how much it decided."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from rewardspec.ops.domain import Domain
from rewardspec.runs.batches import Batch
from rewardspec.runs.moments import Moments, extremes
from rewardspec.spec import Spec


@dataclass(frozen=True)
class ComponentHealth:
    """A component over a run.

    mean, std: of its shaped value, over rollouts where it is present; std divides by N. at_low, at_high: the fraction
    of these at an end of its range; None for a range without that end. missing: the fraction where it is missing.
    share: its part of the sum of |share| over all components; None if the advantage is no sum of shares. weight: the
    mean size of its weight. decides_in: the fraction of groups in which it is not the same for all rollouts.
    with_outcome, with_length: Pearson's r over the rollouts of the run with being right, and with length; None where
    one of them is not known or does not vary.
    """

    name: str
    mean: float | None
    std: float | None
    at_low: float | None
    at_high: float | None
    missing: float
    share: float | None
    weight: float
    decides_in: float
    with_outcome: float | None
    with_length: float | None


class _Tally:
    """Sums of one component."""

    def __init__(self, domain: Domain):
        self.ends = [float(end) if isfinite(end) else None for end in (domain.lo, domain.hi)]
        self.moments, self.with_outcome, self.with_length = Moments(), Moments(), Moments()
        self.at = [0, 0]
        self.share = self.weight = 0.0
        self.rollouts = self.groups = self.varied = 0

    def add(self, name: str, batch: Batch) -> None:
        values = batch.rewards[name]
        self.moments.add(values)
        if batch.right is not None:
            self.with_outcome.add(values, batch.right.astype(float))
        if batch.lengths is not None:
            self.with_length.add(values, batch.lengths)
        there = ~np.isnan(values)
        for i, end in enumerate(self.ends):
            if end is not None:
                self.at[i] += int((np.abs(values[there] - end) <= 1e-6 * max(1.0, abs(end))).sum())
        if batch.shares is not None:
            self.share += float(batch.shares[name].sum())
        self.weight += batch.weights[name] * len(values)
        self.rollouts += len(values)
        low, high = extremes(values[there], batch.of[there], len(batch.sizes))
        self.groups += len(batch.sizes)
        self.varied += int((high - low > 1e-6 * np.maximum(1.0, np.abs(low))).sum())

    def found(self, name: str, whole: float | None) -> ComponentHealth:
        n = self.moments.count
        at = [self.at[i] / n if n and end is not None else None for i, end in enumerate(self.ends)]
        return ComponentHealth(
            name=name,
            mean=float(self.moments.mean[0]) if n else None,
            std=self.moments.std if n else None,
            at_low=at[0],
            at_high=at[1],
            missing=1 - n / self.rollouts if self.rollouts else 0.0,
            share=None if whole is None else self.share / whole if whole else 0.0,
            weight=self.weight / max(self.rollouts, 1),
            decides_in=self.varied / max(self.groups, 1),
            with_outcome=self.with_outcome.correlation,
            with_length=self.with_length.correlation,
        )


class Components:
    """The components of a spec over the steps of a run."""

    def __init__(self, spec: Spec):
        self.tallies = {c.name: _Tally(c.shaped.domain) for c in spec.program.components}
        self.has_shares = True

    def add(self, batch: Batch) -> None:
        self.has_shares &= batch.shares is not None
        for name, tally in self.tallies.items():
            tally.add(name, batch)

    def found(self) -> tuple[ComponentHealth, ...]:
        whole = sum(t.share for t in self.tallies.values()) if self.has_shares else None
        return tuple(tally.found(name, whole) for name, tally in self.tallies.items())
