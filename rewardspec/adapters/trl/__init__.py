"""A spec's advantages inside TRL's GRPO and RLOO trainers. Tested with TRL 1.16.0.

    from rewardspec.adapters.trl import RewardSpecGRPOTrainer

    trainer = RewardSpecGRPOTrainer(model, reward_funcs=[correct, brief], spec="spec.yaml", args=..., train_dataset=...)

Reward functions are matched with the spec's columns by name (`__name__`, or their name in TRL's logs); functions that
the spec names (`use:`, `python:`) need not be passed. Other columns come from the data set, or are `tokens` (the number
of tokens that the model wrote) and `truncated` (1 if the completion was cut off). Weights, aggregation and scaling are
set in the spec; the trainer's own settings for them are refused. The metrics `reward` and `reward_std` (`eval_reward`
in evaluation) are the mean of the spec's `total` and its deviation within groups. Values of reward functions are logged
under `rewards/`, everything else under `rewardspec/`.

A column of a list (`level: turn`) holds a list for each rollout, also if a reward function measures it. The advantage
of an item goes onto the tokens of its stretch: a run of tokens that the model wrote, between those of tools. A list
that the spec reads no column of, as in `correct / position`, has an item for each stretch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewardspec.adapters.common.binding import BindingError
    from rewardspec.adapters.common.rewards import AUTOMATIC
    from rewardspec.adapters.trl.adapter import RewardSpecGRPOTrainer, RewardSpecMixin, RewardSpecRLOOTrainer
    from rewardspec.adapters.trl.installation import install

__all__ = ["AUTOMATIC", "BindingError", "RewardSpecGRPOTrainer", "RewardSpecMixin", "RewardSpecRLOOTrainer", "install"]

_HOMES = {
    "AUTOMATIC": "rewardspec.adapters.common.rewards",
    "BindingError": "rewardspec.adapters.common.binding",
    "RewardSpecGRPOTrainer": "rewardspec.adapters.trl.adapter",
    "RewardSpecMixin": "rewardspec.adapters.trl.adapter",
    "RewardSpecRLOOTrainer": "rewardspec.adapters.trl.adapter",
    "install": "rewardspec.adapters.trl.installation",
}


def __getattr__(name: str) -> object:
    """A public name, imported on first use: `for_trl` and `compile --target trl` do not need TRL."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
