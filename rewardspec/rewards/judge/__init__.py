"""A language model as judge of completions. `README.md` describes what its answers can do, and where a key is sent."""

from rewardspec.rewards.judge.account import Account, Budget, Limits, Price
from rewardspec.rewards.judge.key import allow_key
from rewardspec.rewards.judge.rewards import rubric

__all__ = ["Account", "Budget", "Limits", "Price", "allow_key", "rubric"]
