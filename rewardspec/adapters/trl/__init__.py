"""A spec's advantages inside TRL's GRPO and RLOO trainers. Tested with TRL 1.16.0.

    from rewardspec.adapters.trl import RewardSpecGRPOTrainer

    trainer = RewardSpecGRPOTrainer(model, reward_funcs=[correct, brief], spec="spec.yaml", args=..., train_dataset=...)

Reward functions measure the spec's columns and are matched to them by name (`__name__`, or what TRL logs them
as); those that the spec names itself (`use:`, `python:`) need not be passed. Columns that no function measures
come from the data set, or are `tokens` (those of the completion that the model wrote) and `truncated` (1 where it
was cut off). Weights, aggregation and scaling stand in the spec: the trainer's own settings for them are refused.
Its metrics `reward` and `reward_std` (`eval_reward` in evaluation) are the mean of the spec's `total` and its
deviation in the group; what reward functions measured stands under `rewards/`, and the rest under `rewardspec/`.
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
    """A public name, looked up when it is asked for: `for_trl` and `compile --target trl` go without TRL."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
