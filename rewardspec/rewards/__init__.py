"""Reward functions of the papers: text in, numbers out.

Each is a plain function that anyone can call (`rewardspec.rewards.toolrl.correctness(completion, answer)`), in
the file of its family; `use: toolrl.correctness` names it in a spec.
"""

from rewardspec.rewards.permission import NotAllowed
from rewardspec.rewards.reward import BadReference, Reward, ScoringError, all_rewards, find_reward, reward
from rewardspec.rewards.scorer import Scorer
from rewardspec.rewards.trainers import for_openrlhf, for_trl, for_verl

__all__ = [
    "BadReference",
    "NotAllowed",
    "Reward",
    "Scorer",
    "ScoringError",
    "all_rewards",
    "find_reward",
    "for_openrlhf",
    "for_trl",
    "for_verl",
    "reward",
]
