"""`for_verl`: the reward functions of a spec for verl."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rewardspec.adapters.common.rewards import scorer_of, weighed
from rewardspec.adapters.verl.embedding import FILLED
from rewardspec.scoring.permission import Allowed
from rewardspec.spec import Spec


def for_verl(
    spec: Spec, *, allow_python: Allowed = False, functions: Mapping[str, Callable] = {}
) -> Callable[..., dict[str, Any]]:
    """`compute_score` for verl: a dict with a value for each column, and `score`, which verl requires.

    The ground truth is the column `answer`, even if `extra_info` has one; other columns come from `extra_info`. So does
    the prompt: if it has another name there, the spec needs `with: {prompt: question}`. Missing values are None. A
    column of a list's level is a list. Columns of the spec that `extra_info` has, such as the points of criteria, are
    passed on with the values: verl's trainers do not have them.
    `score` is the weighted total as far as one rollout decides it (`Spec.weighed`), for verl's own logs: no advantage
    is computed from it. Raises ScoringError.
    """
    scorer = scorer_of(spec, allow_python, functions)
    weigh = weighed(spec, [*scorer.names, "data_source"])
    others = [name for name in spec.columns if name not in (*scorer.names, *FILLED)]

    def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_) -> dict[str, Any]:
        known = {"answer": ground_truth, "ground_truth": ground_truth, "data_source": data_source}
        (found,) = scorer.required([{**(extra_info or {}), **known, "completion": solution_str}])
        passed = {name: extra_info[name] for name in others if extra_info and name in extra_info and name not in known}
        return {"score": weigh([{**known, **found}])[0], **passed, **found}

    compute_score.spec = spec  # type: ignore[attr-defined]  # for the adapter, which compares it with the run's
    return compute_score
