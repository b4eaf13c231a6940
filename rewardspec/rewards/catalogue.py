"""The reward functions: all, or one by its name. A family is a module or a package next to this file."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from rewardspec.rewards.reward import Reward, known


def find_reward(name: str) -> Reward | None:
    """The reward function called `family.function`; None if there is none."""
    family = name.partition(".")[0]
    if family not in _modules():
        return None
    return next((found for found in _of(family) if found.name == name), None)


def all_rewards() -> list[Reward]:
    """Every reward function, family by family."""
    return [found for family in _modules() for found in _of(family)]


def _modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]


def _of(family: str) -> list[Reward]:
    import_module(f"rewardspec.rewards.{family}")
    return [found for found in known() if found.name.partition(".")[0] == family]
