"""A language model as judge of completions. `README.md` says what its answers can do, and where a key goes."""

from rewardspec.rewards.judge.key import allow_key
from rewardspec.rewards.judge.rewards import rubric

__all__ = ["allow_key", "rubric"]
