"""What adapters log of a batch, in every trainer under the same names as `replay` shows it: docs/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rewardspec.adapters.common.rollout_log import PREFIX
from rewardspec.adapters.common.state import logged
from rewardspec.function import AdvantageFunction, Result, State
from rewardspec.logs.run import Step
from rewardspec.runs.batches import batch_of, measures_of, numbers
from rewardspec.runs.health import health
from rewardspec.runs.moments import Numbers
from rewardspec.spec import Spec


class Metrics:
    """The metrics of one spec in a trainer."""

    def __init__(self, spec: Spec):
        self.spec, self.measures = spec, measures_of(spec)

    def __call__(
        self,
        columns: Mapping[str, Any],
        groups: Sequence[int] | np.ndarray,
        result: Result,
        state: State | None,
        *,
        step: int | None = None,
        **moment: Any,
    ) -> dict[str, float]:
        """The metrics of a batch of N rollouts, by name, with the prefix. What is not known has no entry.

        columns: those that the spec read. groups: [N] the number of each rollout's group, in order of first appearance.
        state: after the batch. moment: the rest that the function was called with.
        """
        found = result.metrics()
        if found:
            of, moment = np.asarray(groups, dtype=np.int64), {"step": step, **moment}
            before, right = (self._ask(f, columns, of, moment) for f in (self.measures.before, self.measures.right))
            batch = batch_of(self.spec, self.measures, Step(step, of.tolist(), {}), of, result, before, right)
            known = asdict(health(batch, step or 0, self.measures.normalised))
            found |= {name: float(x) for name, x in known.items() if name not in found and x is not None}
            del found["step"]
        found |= {f"raw/{name}": mean for name, mean in means(self.spec, columns).items()} | logged(state)
        return {PREFIX + name: value for name, value in found.items()}

    def _ask(
        self, function: AdvantageFunction | None, columns: Mapping[str, Any], of: np.ndarray, moment: Mapping[str, Any]
    ) -> Numbers | None:
        """What a function gives for the batch; None where the trainer did not measure what it reads."""
        if function is None or not {*function.spec.columns} <= columns.keys():
            return None
        try:
            return numbers(function({name: columns[name] for name in function.spec.columns}, of, **moment).advantages)
        except ValueError:  # an outcome without a value, which no advantage needs: a metric ends no training
            return None


def means(spec: Spec, columns: Mapping[str, Any]) -> dict[str, float]:
    """The mean of each column of numbers over what is present, of a list over its items; NaN where nothing is."""
    found = {}
    for name, column in columns.items():
        declared = spec.program.columns[name]
        if declared.domain.nominal:
            continue
        if hasattr(column, "detach"):
            values = numbers(column)
        else:
            flat = [item for row in column for item in row] if declared.level.listed else column
            values = np.array([np.nan if value is None else value for value in flat], dtype=float)
        present = values[~np.isnan(values)]
        found[name] = float(present.mean()) if len(present) else float("nan")
    return found
