"""Reward functions of the papers: text in, numbers out.

Each is a plain function that anyone can call (`rewardspec.rewards.toolrl.correctness(completion, answer)`), in
the file of its family; `use: toolrl.correctness` names it in a spec.
"""

from rewardspec.rewards.reward import BadReference, Reward, families, find_reward, reward

__all__ = ["BadReference", "Reward", "families", "find_reward", "reward"]
