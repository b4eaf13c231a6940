"""The older name of `rewardspec.adapters.trl.asynchronous`."""

from rewardspec.adapters.trl.asynchronous import RewardSpecAsyncGRPOTrainer, SpecLoop

__all__ = ["RewardSpecAsyncGRPOTrainer", "SpecLoop"]
