"""The common part of `for_trl`, `for_verl` and `for_openrlhf`, the reward functions of a spec for a trainer.

They take a loaded Spec, call each of its functions once per rollout, and name the values like the spec's columns. User
functions (`python:`) need a permission: `allow_python=True` for all of the spec, or names of modules, packages or
`module:function`; or they are passed by column as `functions=`. Otherwise NotAllowed is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.scorer import Scorer
from rewardspec.spec import Spec

AUTOMATIC = ("tokens", "truncated")  # columns that trainers measure themselves


def scorer_of(
    spec: Spec, allow_python: Allowed, functions: Mapping[str, Callable], only: Collection[str] | None = None
) -> Scorer:
    """The scorer of a spec's reward functions. Raises ScoringError if the spec names none."""
    if not spec.uses and not {*spec.columns} <= {*AUTOMATIC}:
        raise ScoringError(
            f"{spec.name} names no reward function: add one to a component, such as `use: toolrl.format`"
        )
    return Scorer(spec, allow_python, functions, only)


def weighed(spec: Spec, columns: Sequence[str]) -> Callable[[Sequence[Mapping]], list[float]]:
    """A function of rows to the weighted total of each, as far as these columns decide it; 0 if they do not."""
    columns = [name for name in columns if name in spec.columns]
    totals = spec.weighed(columns)

    def weigh(rows: Sequence[Mapping]) -> list[float]:
        if totals is None or not rows:
            return [0.0] * len(rows)
        return totals({name: [row[name] for row in rows] for name in columns})

    return weigh
