"""What adapters log of a batch, in every trainer under the same names as `replay` shows it: docs/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from rewardspec.spec import Spec, compile


class Metrics:
    """The metrics of one spec in a trainer."""

    def __init__(self, spec: Spec):
        self.spec, self.measures, self.function = spec, measures_of(spec), compile(spec)

    def __call__(
        self,
        columns: Mapping[str, Any],
        groups: Sequence[int] | np.ndarray,
        result: Result,
        state: State | None,
        *,
        before: State | None = None,
        **moment: Any,
    ) -> dict[str, float]:
        """The metrics of a batch of N rollouts, by name, with the prefix. What is not known has no entry.

        columns: those that the spec read. groups: [N] the number of each rollout's group, in order of first appearance.
        state: after the batch. before: the state before it. moment: the rest that the function was called with.

        Of columns on a device the host waits once: they are copied together, and all that is logged is computed in
        host memory, where a look costs nothing.
        """
        of, step = np.asarray(groups, dtype=np.int64), moment.get("step")
        grouped = _size(of) or of
        if (copied := self.function.in_host_memory(columns, moment)) is not None:
            columns, moment = copied
            with suppress(ValueError):  # of a batch that another processor rounds otherwise; the result is known, too
                result = self.function(columns, grouped, **moment, state=before)
        found = result.metrics()
        if found:
            asked = (self.measures.before, self.measures.right)
            unnormalised, right = (self._ask(function, columns, grouped, moment) for function in asked)
            batch = batch_of(self.spec, self.measures, Step(step, of.tolist(), {}), of, result, unnormalised, right)
            known = asdict(health(batch, step or 0, self.measures.normalised))
            found |= {name: float(x) for name, x in known.items() if name not in found and x is not None}
            del found["step"]
        found |= {f"raw/{name}": mean for name, mean in means(self.spec, columns).items()} | logged(state)
        return {PREFIX + name: value for name, value in found.items()}

    def _ask(
        self,
        function: AdvantageFunction | None,
        columns: Mapping[str, Any],
        groups: int | np.ndarray,
        moment: Mapping[str, Any],
    ) -> Numbers | None:
        """What a function gives for the batch; None where the trainer did not measure what it reads."""
        if function is None or not {*function.spec.columns} <= columns.keys():
            return None
        try:
            return numbers(
                function({name: columns[name] for name in function.spec.columns}, groups, **moment).advantages
            )
        except ValueError:  # an outcome without a value, which no advantage needs: a metric ends no training
            return None


def _size(of: np.ndarray) -> int:
    """The size of every group, if rows of a group are adjacent; 0 if sizes differ. of: numbers of groups, from 0."""
    size = len(of) // (int(of[-1]) + 1) if len(of) else 0
    return size if size and np.array_equal(of, np.arange(len(of)) // size) else 0


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
