"""The reward functions of a spec, as each trainer wants to be given them.

Each takes a loaded Spec, evaluates every function once a rollout, and gives what the spec's columns are called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from rewardspec.rewards.scorer import Scorer


def for_trl(spec) -> list[Callable[..., list[float | None]]]:
    """`reward_funcs` for TRL: a function for each column, in the order of the spec, named as the column is.

    Each takes `prompts`, `completions` and the data set's columns and gives a number or None a completion. The
    first that is called on a batch measures all of it. Raises ScoringError.
    """
    batch = _Batch(Scorer(spec))
    return [batch.function(name) for name in batch.scorer.names]


class _Batch:
    """The last batch that was measured: TRL calls the functions one after the other on the same lists."""

    def __init__(self, scorer: Scorer):
        self.scorer, self.lock = scorer, Lock()
        self.completions: object = None  # held, so that no other list can be taken for it
        self.rows: list[Mapping[str, float | None]] = []

    def function(self, name: str) -> Callable[..., list[float | None]]:
        def reward_func(prompts: Sequence, completions: Sequence, **columns) -> list[float | None]:
            with self.lock:
                if completions is not self.completions:
                    self.rows = self.scorer.required(_rows(prompts, completions, columns))
                    self.completions = completions
                return [row[name] for row in self.rows]

        reward_func.__name__ = reward_func.__qualname__ = name
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


def for_verl(spec) -> Callable[..., dict[str, float]]:
    """`compute_score` for verl: a dict with a value for each column, and `score`, which verl wants.

    The ground truth is the column `answer`; `extra_info` holds the others. A value that is missing is NaN. `score`
    is the plain sum of what was measured, for verl's own tables: no advantage is worked out from it.
    Raises ScoringError.
    """
    scorer = Scorer(spec)

    def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_) -> dict[str, float]:
        known = {"prompt": "", "answer": ground_truth, "ground_truth": ground_truth, "data_source": data_source}
        (found,) = scorer.required([{**known, **(extra_info or {}), "completion": solution_str}])
        values = {name: math.nan if value is None else value for name, value in found.items()}
        return {"score": _sum(found), **values}

    return compute_score


def for_openrlhf(spec) -> Callable[..., dict]:
    """`reward_func` for OpenRLHF: tensors [N] of every column under `extra_logs`.

    The label is the column `answer`. `rewards` and `scores` are the plain sum of what was measured, for OpenRLHF's
    own tables: no advantage is worked out from it. Raises ScoringError.
    """
    scorer = Scorer(spec)

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence, **_) -> dict:
        import torch

        rows = [
            {"prompt": prompt, "completion": query.removeprefix(prompt), "answer": label, "label": label}
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        ]
        found = scorer.required(rows)
        sums = torch.tensor([_sum(values) for values in found])
        logs = {
            name: torch.tensor([math.nan if values[name] is None else values[name] for values in found])
            for name in scorer.names
        }
        return {"rewards": sums, "scores": sums, "extra_logs": logs}

    return reward_func


def _sum(values: Mapping[str, float | None]) -> float:
    return math.fsum(value for value in values.values() if value is not None)
