"""What is wrong in a run: each remark with its numbers, and the rollouts that show it best.

An audit, not a proof: it sees the rollouts that were logged, under the policy that drew them. It cannot know whether an
answer that was measured as right is right, nor what the policy would have learned under another spec.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import sqrt
from typing import Any

import numpy as np

from rewardspec.runs.batches import Batch, Codes, SpecOverRun
from rewardspec.runs.components import ComponentHealth
from rewardspec.runs.guarantees import Broken
from rewardspec.runs.health import StepHealth
from rewardspec.runs.moments import Moments, extremes

FEWEST = 20  # rollouts, or groups, of which a rate is told
FEWEST_STEPS = 12  # of which a trend is told: four in each third
MOST_SHOWN = 3  # groups of a remark
MOST_OF_A_GROUP = 64  # rollouts that are shown of one: half of them with most advantage, half with least

ERROR, WARNING = "error", "warning"

CODES = (
    "guarantee-broken",
    "wrong-above-right",
    "wrong-rewarded",
    "right-punished",
    "length-pays-wrong",
    "component-dead",
    "component-decides",
    "reward-without-outcome",
    "batch-step-amplifies",
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Remark:
    """A remark of the audit. rollouts: those that show it best, with step, group, file, row and values.

    `rollout` is the place of a rollout in its step, from 0, and `group` that of its group. Of a group of more than 64
    those with most and with least advantage are shown, with its size as `group_size`.
    """

    code: str
    severity: str
    message: str
    rollouts: tuple[Row, ...] = ()


class Best:
    """The groups that show a remark best."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, list[Row]]] = []
        self.ties = count()

    def add(self, worth: float, batch: Batch, number: int, group: int, other: Batch | None = None) -> None:
        """Keep a group if it shows more than one that is kept. other: the same rollouts under another spec."""
        if len(self.heap) < MOST_SHOWN or worth > self.heap[0][0]:
            at = np.flatnonzero(batch.of == group)
            at = ends(batch, at)
            rows = shown(batch, number, at)
            if other is not None:
                rows = [{**row, "advantage_b": float(other.advantages[i])} for row, i in zip(rows, at, strict=True)]
            push = heapq.heappush if len(self.heap) < MOST_SHOWN else heapq.heappushpop
            push(self.heap, (worth, -next(self.ties), rows))

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for _, _, rows in sorted(self.heap, key=lambda found: found[:2], reverse=True) for row in rows)


def ends(batch: Batch, rows: Codes) -> Codes:
    """Of the rollouts of a large group those with most and with least advantage, in their order."""
    order = rows[np.argsort(batch.advantages[rows], kind="stable")]
    half = MOST_OF_A_GROUP // 2
    return np.sort(np.concatenate([order[:half], order[-half:]])) if len(rows) > MOST_OF_A_GROUP else rows


def shown(batch: Batch, number: int, rows: Codes | Sequence[int]) -> list[Row]:
    """Rollouts of a step, with what the spec made of them."""
    found = []
    for i in map(int, rows):
        row: Row = {"step": number, "group": int(batch.of[i]), "rollout": i}
        if (size := int(batch.sizes[batch.of[i]])) > len(rows):
            row["group_size"] = size
        if batch.step.places:
            path, line = batch.step.places[i]
            row |= {"file": str(path), "row": line}
        row["advantage"] = float(batch.advantages[i])
        if batch.right is not None:
            row["right"] = bool(batch.right[i])
        if batch.lengths is not None and not np.isnan(batch.lengths[i]):
            row["length"] = float(batch.lengths[i])
        row["rewards"] = {n: None if np.isnan(x[i]) else float(x[i]) for n, x in batch.rewards.items()}
        found.append(row)
    return found


class Check(ABC):
    """Looks at one batch after another."""

    @abstractmethod
    def add(self, batch: Batch, number: int) -> None: ...

    @abstractmethod
    def remarks(self) -> Iterator[Remark]: ...


class WrongAboveRight(Check):
    """Groups in which a wrong rollout has more advantage than a right one."""

    def __init__(self) -> None:
        self.mixed = self.inverted = 0
        self.best = Best()

    def add(self, batch: Batch, number: int) -> None:
        if batch.right is None:
            return
        groups = len(batch.sizes)
        _, wrong = extremes(batch.advantages[~batch.right], batch.of[~batch.right], groups)
        right, _ = extremes(batch.advantages[batch.right], batch.of[batch.right], groups)
        mixed = np.isfinite(wrong) & np.isfinite(right)
        gap = np.where(mixed, wrong - right, -np.inf)
        above = mixed & (gap > 1e-5 * np.maximum(1.0, np.abs(wrong)))
        self.mixed += int(mixed.sum())
        self.inverted += int(above.sum())
        for group in np.flatnonzero(above)[np.argsort(-gap[above])][:MOST_SHOWN]:
            self.best.add(float(gap[group]), batch, number, int(group))

    def remarks(self) -> Iterator[Remark]:
        if self.inverted:
            message = (
                f"in {self.inverted} of {self.mixed} groups with right and wrong answers a wrong one has more "
                "advantage than a right one"
            )
            yield Remark("wrong-above-right", WARNING, message, self.best.rows)


class WrongRewarded(Check):
    """Wrong rollouts with a positive advantage, and right ones with a negative one beside a wrong one.

    In a group where all are right, half of them can be below its mean and all be well.
    """

    RATE = {"wrong": 0.05, "right": 0.1}  # a few can be meant: a right answer that is by far the longest

    def __init__(self) -> None:
        self.of = {"wrong": 0, "right": 0}
        self.against = {"wrong": 0, "right": 0}
        self.all_wrong = 0
        self.best = {"wrong": Best(), "right": Best()}

    def add(self, batch: Batch, number: int) -> None:
        if batch.right is None or batch.rights is None:
            return
        beside = (batch.rights < batch.sizes)[batch.of]
        for kind, among, sign in (("wrong", ~batch.right, 1.0), ("right", batch.right & beside, -1.0)):
            pulls = np.where(among, sign * batch.advantages, -np.inf)
            against = pulls > 1e-6
            self.of[kind] += int(among.sum())
            self.against[kind] += int(against.sum())
            _, most = extremes(pulls[against], batch.of[against], len(batch.sizes))
            for group in np.argsort(-most)[:MOST_SHOWN]:
                if np.isfinite(most[group]):
                    self.best[kind].add(float(most[group]), batch, number, int(group))
            if kind == "wrong":
                self.all_wrong += int((against & (batch.rights[batch.of] == 0)).sum())

    def remarks(self) -> Iterator[Remark]:
        for kind, code, does in (
            ("wrong", "wrong-rewarded", "a positive"),
            ("right", "right-punished", "a negative"),
        ):
            n, against = self.of[kind], self.against[kind]
            if n >= FEWEST and against > self.RATE[kind] * n:
                which = "wrong answers" if kind == "wrong" else "right answers beside wrong ones"
                message = f"{against} of {n} {which} ({against / n:.0%}) have {does} advantage"
                if kind == "wrong":
                    message += f", {self.all_wrong} of them in groups without a right answer"
                yield Remark(code, WARNING, message, self.best[kind].rows)


class LengthPaysWrong(Check):
    """Among the wrong answers of a group, more advantage for the longer, or for the shorter."""

    LEAST = 0.3

    def __init__(self) -> None:
        self.moments = Moments()
        self.best = Best()

    def add(self, batch: Batch, number: int) -> None:
        if batch.right is None or batch.lengths is None:
            return
        wrong = ~batch.right & ~np.isnan(batch.lengths)
        of, groups = batch.of[wrong], len(batch.sizes)
        some = np.maximum(np.bincount(of, minlength=groups), 1)
        apart = []
        for values in (batch.advantages[wrong], batch.lengths[wrong]):
            apart.append(values - (np.bincount(of, values, groups) / some)[of])
        several = some[of] > 1
        self.moments.add(apart[0][several], apart[1][several])
        pull = np.abs(np.bincount(of, apart[0] * apart[1], groups))
        for group in np.argsort(-pull)[:MOST_SHOWN]:
            if pull[group] > 0:
                self.best.add(float(pull[group]), batch, number, int(group))

    def remarks(self) -> Iterator[Remark]:
        r = self.moments.correlation
        if r is not None and self.moments.count >= FEWEST and abs(r) > self.LEAST:
            which = "longer" if r > 0 else "shorter"
            message = (
                f"among the {self.moments.count} wrong answers that a group has beside others, {which} ones have more "
                f"advantage (r = {r:.2f})"
            )
            yield Remark("length-pays-wrong", WARNING, message, self.best.rows)


def of_components(found: Sequence[ComponentHealth], groups: int) -> Iterator[Remark]:
    """Components that decide nothing, or more than their weight says."""
    weights = sum(c.weight for c in found)
    for c in found:
        if groups >= FEWEST and c.mean is None:
            yield Remark("component-dead", WARNING, f"`{c.name}` is missing in every rollout")
        elif groups >= FEWEST and not c.decides_in:
            message = f"`{c.name}` is the same for all rollouts in each of {groups} groups: it decides nothing"
            if c.at_low == 1 or c.at_high == 1:
                message += f", and it is always at the {'lower' if c.at_low == 1 else 'upper'} end of its range"
            yield Remark("component-dead", WARNING, message)
        if c.share is None or len(found) < 2 or not weights:
            continue
        said = c.weight / weights
        if c.share > 0.5 and c.share > 2 * said:
            message = f"`{c.name}` has {said:.0%} of the weight and {c.share:.0%} of the advantage"
            yield Remark("component-decides", WARNING, message)


def of_steps(steps: Sequence[StepHealth]) -> Iterator[Remark]:
    """What changes over the run: reward against outcome, and the size of live advantages."""
    third = len(steps) // 3
    if len(steps) < FEWEST_STEPS:
        return
    first, last = steps[:third], steps[-third:]
    totals, rights = ([(s.total, s.right) for s in part] for part in (first, last))
    if all(None not in pair for pair in (*totals, *rights)):
        total, right = (_rise([p[i] for p in totals], [p[i] for p in rights]) for i in (0, 1))  # type: ignore[misc]
        if total[2] > 4 and right[2] < 1 and right[1] < 0.95:
            message = (
                f"the reward rises from {total[0]:.3g} to {total[1]:.3g} between the first and the last third of the "
                f"run, while right answers go from {right[0]:.0%} to {right[1]:.0%}"
            )
            yield Remark("reward-without-outcome", WARNING, message)
    factors = [[s.batch_factor for s in part if s.batch_factor is not None] for part in (first, last)]
    if all(factors):
        before, after = (float(np.mean(part)) for part in factors)
        if after > 1.5 * before:
            dead = [float(np.mean([s.groups_without_signal for s in part])) for part in (first, last)]
            message = (
                f"the batch's normalisation multiplies advantages by {before:.3g} in the first third of the run and by "
                f"{after:.3g} in the last, as groups without signal go from {dead[0]:.0%} to {dead[1]:.0%}"
            )
            if dead[1] > dead[0]:
                message += ": what is left grows"
            message += ". `decoupled` has no such step"
            yield Remark("batch-step-amplifies", WARNING, message)


def _rise(first: Sequence[float], last: Sequence[float]) -> tuple[float, float, float]:
    """The means of two samples, and their difference in standard errors."""
    a, b = np.array(first, dtype=float), np.array(last, dtype=float)
    error = sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)) if len(a) > 1 else 0.0
    apart = float(b.mean() - a.mean())
    scale = 1e-9 * max(1.0, abs(float(a.mean())))
    return float(a.mean()), float(b.mean()), apart / max(error, scale)


class Audit:
    """The checks of one spec over a run."""

    def __init__(self, asked: SpecOverRun):
        self.checks: list[Check] = [WrongAboveRight(), WrongRewarded(), LengthPaysWrong()]
        self.asked, self.broken = asked, Broken(asked.spec, asked.total_steps)

    def add(self, batch: Batch, number: int) -> None:
        for check in self.checks:
            check.add(batch, number)
        self.broken.add(
            batch, number, partial(self.asked.columns, batch.step), lambda rows: shown(batch, number, ends(batch, rows))
        )

    def found(self, steps: Sequence[StepHealth], components: Sequence[ComponentHealth]) -> tuple[Remark, ...]:
        groups = sum(step.groups for step in steps)
        remarks = [Remark("guarantee-broken", ERROR, message, tuple(rows)) for message, rows in self.broken.found()]
        remarks += [remark for check in self.checks for remark in check.remarks()]
        return (*remarks, *of_components(components, groups), *of_steps(steps))
