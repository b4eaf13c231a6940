"""How much the groups of each step had to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from rewardspec.runs.batches import Batch, Codes
from rewardspec.runs.moments import Numbers


@dataclass(frozen=True)
class StepHealth:
    """A step of a run under a spec. A trainer logs its fields under the same names: docs/metrics.md.

    rollouts, groups: how many. rollouts_without_signal: the fraction of rollouts with advantage 0.
    groups_without_signal: the fraction of dead groups, whose advantages are all equal. It
    is the sum of all_right, all_wrong and tied: dead groups in which every rollout is right, none is, or neither; None
    without an outcome. groups_kept: the fraction of groups in the batch. advantage_spread: max - min of the advantage,
    mean over groups. effective: the effective sample size, (sum |A|)^2 / (N sum A^2): 1 where all rollouts pull alike,
    0 for none. live_size: the mean |advantage| in live groups. batch_factor: what the batch's normalisation multiplies
    them by; None where there is none, or where it is not known. total, right: means over rollouts; total_std: the
    standard deviation of the total in a group, mean over groups; None where not known.
    """

    step: int
    rollouts: int
    groups: int
    rollouts_without_signal: float
    groups_without_signal: float
    all_right: float | None
    all_wrong: float | None
    tied: float | None
    groups_kept: float
    advantage_spread: float
    effective: float
    live_size: float | None
    batch_factor: float | None
    total: float | None
    total_std: float | None
    right: float | None


# what of the steps has a mean over their groups
MEANS = tuple(f.name for f in fields(StepHealth) if f.name not in ("step", "rollouts", "groups"))


def health(batch: Batch, number: int, normalised: bool) -> StepHealth:
    """The health of one step. normalised: whether the spec has a step over the batch."""
    groups, dead = len(batch.sizes), batch.dead
    size, live = np.abs(batch.advantages), ~dead[batch.of]
    split: tuple[float | None, ...] = (None, None, None)
    if batch.rights is not None:
        every, none = dead & (batch.rights == batch.sizes), dead & (batch.rights == 0)
        split = tuple(float(kind.mean()) for kind in (every, none, dead & ~every & ~none))
    live_size = float(size[live].mean()) if live.any() else None
    factor = None
    if normalised and batch.before is not None and live_size:
        before = float(_centred(batch.before, batch.of, len(batch.sizes))[live].mean())
        after = float(_centred(batch.advantages, batch.of, len(batch.sizes))[live].mean())
        factor = after / before if before > 0 else None
    squares = float((size**2).sum())
    return StepHealth(
        step=number,
        rollouts=len(size),
        groups=groups,
        rollouts_without_signal=float(np.mean(batch.sums == 0)),
        groups_without_signal=float(dead.mean()),
        all_right=split[0],
        all_wrong=split[1],
        tied=split[2],
        groups_kept=float(batch.kept.mean()),
        advantage_spread=float(np.where(dead, 0.0, batch.high - batch.low).mean()),
        effective=float(size.sum()) ** 2 / (len(size) * squares) if squares else 0.0,
        live_size=live_size,
        batch_factor=factor,
        total=mean_of(batch.total),
        total_std=None if batch.total is None else _deviation(batch.total, batch.of, groups),
        right=None if batch.right is None else float(batch.right.mean()),
    )


def mean_over(steps: Sequence[StepHealth], name: str) -> float | None:
    """The mean over groups of what each step has under a name; None where no step knows it."""
    known = [(getattr(s, name), s.groups) for s in steps if getattr(s, name) is not None]
    return float(np.average([v for v, _ in known], weights=[w for _, w in known])) if known else None


def parts_of(steps: Sequence[StepHealth], most: int) -> list[Sequence[StepHealth]]:
    """Neighbouring steps put together, equally many, so that there are at most so many parts."""
    size = -(-len(steps) // most)
    return [steps[i : i + size] for i in range(0, len(steps), max(size, 1))]


def together(part: Sequence[StepHealth]) -> dict[str, object]:
    """Some steps as one row: their means over groups, rollouts and groups in all, and the range of each number.

    step, last_step: the first and the last of them. low, high: name to the least and the greatest that a step has;
    None where no step knows it.
    """
    row: dict[str, object] = {"step": part[0].step, "last_step": part[-1].step}
    row |= {"rollouts": sum(s.rollouts for s in part), "groups": sum(s.groups for s in part)}
    known = {name: [v for s in part if (v := getattr(s, name)) is not None] for name in MEANS}
    low = {name: min(values, default=None) for name, values in known.items()}
    high = {name: max(values, default=None) for name, values in known.items()}
    return row | {name: mean_over(part, name) for name in MEANS} | {"low": low, "high": high}


def mean_of(values: Numbers | None) -> float | None:
    """The mean of the values that are there; None without any."""
    if values is None or np.isnan(values).all():
        return None
    return float(np.nanmean(values))


def _deviation(values: Numbers, of: Codes, count: int) -> float | None:
    """The standard deviation of the values that are there in a group, mean over groups; None without any."""
    there = ~np.isnan(values)
    values, of = values[there], of[there]
    counts = np.bincount(of, minlength=count)
    apart = values - (np.bincount(of, values, count) / np.maximum(counts, 1))[of]
    squares = np.bincount(of, apart**2, count)[counts > 0] / np.maximum(counts[counts > 0] - 1, 1)
    return float(np.sqrt(squares).mean()) if len(values) else None


def _centred(values: Numbers, of: Codes, count: int) -> Numbers:
    """|value - mean of its group|: what a shift of the batch leaves alone."""
    means = np.bincount(of, values, count) / np.maximum(np.bincount(of, minlength=count), 1)
    found: Numbers = np.abs(values - means[of])
    return found
