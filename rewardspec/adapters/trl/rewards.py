"""`for_trl`: the reward functions of a spec for TRL. It needs neither TRL nor torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

from rewardspec.adapters.common.rewards import scorer_of
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.scorer import Scorer
from rewardspec.spec import Spec


def for_trl(
    spec: Spec,
    *,
    allow_python: Allowed = False,
    functions: Mapping[str, Callable] = {},
    only: Collection[str] | None = None,
) -> list[Callable[..., list[Any]]]:
    """`reward_funcs` for TRL: a function for each column, with its name, in the order of the spec.

    Each takes `prompts`, `completions` and the data set's columns and returns a number or None for each completion. The
    first call on a batch measures all columns. A column of a list's level has a list for each completion, which the
    trainers of `rewardspec.adapters.trl` carry, and stock TRL does not. only: the columns to measure. Raises
    ScoringError.
    """
    batch = _Batch(scorer_of(spec, allow_python, functions, only))
    return [batch.function(name) for name in batch.scorer.names]


class _Batch:
    """The last batch that was measured: TRL calls each function once, one after the other, on the same lists."""

    def __init__(self, scorer: Scorer):
        self.scorer, self.lock = scorer, Lock()
        self.completions: object = None  # kept alive, so that no other list gets its identity
        self.rows: list[dict[str, Any]] = []
        self.given: set[str] = set()  # functions called on this batch: a second call measures again

    def function(self, name: str) -> Callable[..., list[Any]]:
        def reward_func(prompts: Sequence, completions: Sequence, **columns) -> list[Any]:
            with self.lock:
                if completions is not self.completions or name in self.given:
                    self.rows = self.scorer.required(_rows(prompts, completions, columns))
                    self.completions, self.given = completions, set()
                self.given.add(name)
                return [row[name] for row in self.rows]

        reward_func.__name__ = reward_func.__qualname__ = name
        reward_func.needs = self.scorer.needs[name]  # type: ignore[attr-defined]  # for the adapter
        return reward_func


def _rows(prompts: Sequence, completions: Sequence, columns: Mapping) -> list[dict]:
    held = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == len(completions)
    }
    return [
        {**{name: values[i] for name, values in held.items()}, "prompt": prompts[i], "completion": completions[i]}
        for i in range(len(completions))
    ]
