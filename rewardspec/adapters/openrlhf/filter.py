"""OpenRLHF's dynamic filtering under a spec: dead groups are replaced by new prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from rewardspec.adapters.common.binding import BindingError, check_rewards
from rewardspec.adapters.common.lists import listed_columns, lists_of_turns
from rewardspec.adapters.common.liveness import LivenessTest
from rewardspec.adapters.openrlhf.checks import FILLED_IN
from rewardspec.adapters.openrlhf.rollouts import SWALLOWED, unlike_groups, values
from rewardspec.adapters.openrlhf.turns import column
from rewardspec.spec import Spec

# From a number of prompts to Experiences of one rollout each, how many prompts were used, and whether none are left.
Draw = Callable[[int], tuple[list, int, bool]]


class Filter:
    """Rollouts of a number of prompts, all with live groups."""

    def __init__(self, spec: Spec, seed: int):
        self.spec, self.liveness, self.lists = spec, LivenessTest(spec, seed), listed_columns(spec)

    def __call__(self, draw: Draw, prompts: int, size: int, step: int, total_steps: int) -> tuple[list, int, bool]:
        """The result of `draw` for live groups only: dead groups are replaced until no prompts are left.

        size: of a group. OpenRLHF draws each replacement at once; here they are drawn together, in rounds.
        """
        kept: list = []
        taken = 0
        while True:
            found, used, exhausted = draw(prompts - len(kept) // size)
            taken += used
            if problems := unlike_groups(found, size):  # before they are cut into groups of that size
                raise BindingError("\n".join(problems))
            for start in range(0, len(found), size):
                group = found[start : start + size]
                if self._is_live(group, step, total_steps):
                    kept += group
            if exhausted or not used or len(kept) >= prompts * size:
                return kept, taken, exhausted

    def _is_live(self, group: Sequence, step: int, total_steps: int) -> bool:
        lists = {}
        if self.lists:
            turns, widths = [sample.rewardspec_turns for sample in group], [s.action_mask.shape[1] for s in group]
            lists = {name: column(turns, name, widths) for name in self.lists}
        columns = {name: [values(name, sample) for sample in group] for name in self.spec.columns if name not in lists}
        there = [name for name, found in (columns | lists).items() if all(x is not None for x in found)]
        check_rewards_of(self.spec, there, group)
        tensors = lists | {
            name: torch.cat([x.reshape(-1).cpu() for x in found if x is not None]) for name, found in columns.items()
        }
        try:
            lengths = {n: [len(sample.rewardspec_turns.ranges) for sample in group] for n in lists_of_turns(self.spec)}
            return self.liveness(tensors, len(group), step, total_steps, lengths or None).live
        except self.liveness.function.RolloutError as error:
            raise BindingError(f"--algo.dynamic_filtering_enable: {error}") from error


def check_rewards_of(spec: Spec, there: Sequence[str], group: Sequence) -> None:
    """Raise BindingError unless each rollout of a group has all columns that the spec reads."""
    try:
        check_rewards(spec, [], [*there, *(name for name in FILLED_IN if name in there)], "value of extra_logs")
    except BindingError as error:
        prompts = {prompt for sample in group for prompt in sample.prompts}
        raise BindingError(f"{error}\nfor every rollout of the prompt {sorted(prompts)[:1]}. {SWALLOWED}") from None
