"""The older name of `rewardspec.rewards.judge.allow_key`."""

from rewardspec.rewards.judge.key import allow_key

__all__ = ["allow_key"]
