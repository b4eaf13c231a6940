"""Whether a group is live under a spec: the test for a trainer's filter of groups, in place of a score.

A group is live if its advantages differ, else dead: nothing would be learned from it. It is tested alone, before the
batch's normalisation, which for any one batch is an increasing affine map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rewardspec.groups.batch import without_batch
from rewardspec.groups.parts import columns_of
from rewardspec.spec import Spec, compile


def undecided(spec: Spec) -> list[str]:
    """Why a group of a spec cannot be tested alone, with fixes; empty if it can."""
    if spec.program.copies is not None:
        return [f"{spec.name} already replaces dropped groups (`refill`): remove one of the two"]
    if columns_of(spec.program.results) & spec.declarations.states.keys():
        return [
            f"whether a group is live under {spec.name} depends on its state, which is unknown when groups are "
            "filtered: remove the filter"
        ]
    if not without_batch(spec.program.graph, spec.program.advantage)[1]:
        return [
            f"whether a group is live under {spec.name} depends on the rest of the batch, which is unknown when groups "
            "are filtered: remove the filter, or compare within the group"
        ]
    return []


def depends_on_moment(spec: Spec) -> bool:
    """Whether advantages depend on `step`, `total_steps` or `progress`."""
    return not spec.needs.isdisjoint(("step", "total_steps"))


@dataclass(frozen=True)
class Liveness:
    """live: whether advantages differ. total: the mean of the weighted total in the group; NaN if it has none."""

    live: bool
    total: float


class LivenessTest:
    """The test of single groups under a spec for which `undecided` returns nothing."""

    def __init__(self, spec: Spec, seed: int = 0):
        root, _ = without_batch(spec.program.graph, spec.program.advantage)
        self.seed = seed
        self.function = compile(replace(spec, program=replace(spec.program, advantage=root, states={})))

    def __call__(
        self,
        columns: Mapping[str, Any],
        size: int,
        step: int | None = None,
        total_steps: int | None = None,
        lengths: Mapping[str, Sequence[int]] | None = None,
    ) -> Liveness:
        """Whether one group of `size` rollouts is live. lengths: of lists that no column has.

        Raises ValueError (RolloutError) for columns that the spec does not allow.
        """
        moment: dict[str, Any] = {"step": step, "total_steps": total_steps, "seed": self.seed}
        out = self.function(columns, [0] * size, **moment, lengths=lengths)
        found = out.metrics()
        return Liveness(found["groups_without_signal"] == 0, found.get("total", math.nan))
