"""Reward functions of the papers: text in, numbers out.

`rewardspec.rewards.toolrl.correctness(completion, answer)` is a plain function; a spec names it by
`use: toolrl.correctness`. Each family of functions has a file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rewardspec.rewards.catalogue import all_rewards, find_reward
from rewardspec.rewards.reward import BadReference, Reward, ScoringError, reward

if TYPE_CHECKING:
    from rewardspec.adapters.openrlhf.rewards import for_openrlhf
    from rewardspec.adapters.trl.rewards import for_trl
    from rewardspec.adapters.verl.rewards import for_verl
    from rewardspec.scoring.permission import NotAllowed
    from rewardspec.scoring.scorer import Scorer

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

_FORWARDS = {  # public names of rooms above this one
    "NotAllowed": "rewardspec.scoring.permission",
    "Scorer": "rewardspec.scoring.scorer",
    "for_openrlhf": "rewardspec.adapters.openrlhf.rewards",
    "for_trl": "rewardspec.adapters.trl.rewards",
    "for_verl": "rewardspec.adapters.verl.rewards",
}


def __getattr__(name: str) -> object:
    """A public name of a higher room, imported on first use."""
    if name == "judge":  # hints of `rewardspec.score` name it
        return import_module("rewardspec.rewards.judge")
    if name not in _FORWARDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FORWARDS[name]), name)
