"""Lists inside a rollout in TRL: reward functions that return lists, and advantages of items on the model's tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from rewardspec.adapters.common.lists import listed_columns
from rewardspec.adapters.common.stretches import counted, onto_tokens, stretches, tokens_of
from rewardspec.spec import Spec


def plain(value: Any) -> Any:
    """A value of a rollout, or a list of them, as plain Python values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [item.item() if hasattr(item, "item") else item for item in value]
    return value


def mean_of(value: Any) -> Any:
    """The mean of the numbers in a list, None if there is none; a value that is not a list as it is."""
    if not isinstance(value, list):
        return value
    present = [float(item) for item in value if isinstance(item, int | float) and item == item]
    return sum(present) / len(present) if present else None


def keeping(name: str, function: Callable, held: dict[str, list]) -> Callable:
    """A reward function whose lists go into `held[name]`, and of which TRL gets the mean of each list.

    TRL's own table and metrics have one number a rollout.
    """

    from trl.trainer.utils import is_async_callable

    def kept(values):
        held[name] = [plain(value) for value in values]
        return [mean_of(value) for value in held[name]]

    @functools.wraps(function)
    def measured(*args, **kwargs):
        return kept(function(*args, **kwargs))

    @functools.wraps(function)
    async def awaited(*args, **kwargs):
        return kept(await function(*args, **kwargs))

    return awaited if is_async_callable(function) else measured


def keep_lists(trainer, spec: Spec, names: list[str]) -> dict[str, list]:
    """Where the lists of a trainer's reward functions will be, by name; its functions are wrapped for that."""
    held: dict[str, list] = {}
    listed = listed_columns(spec)
    for k, name in enumerate(names):
        if name in listed:
            trainer.reward_funcs[k] = keeping(name, trainer.reward_funcs[k], held)
    return held


def stretch_of(out: dict) -> torch.Tensor:
    """The stretch of each token of a generation batch, [B, T]: see `stretches`."""
    return stretches(out["completion_mask"] * out.get("tool_mask", 1))


def turns_of(out: dict) -> torch.Tensor:
    """How many turns each rollout of a generation batch has, [B]: 1 without tools, also where TRL hides it."""
    if "tool_mask" not in out:
        return torch.ones_like(out["completion_mask"][:, 0])
    return counted(stretch_of(out))


def tokens_by_stretch(completion_ids: list[list[int]], out: dict) -> list[list[int]]:
    """How many tokens each stretch of each rollout has."""
    if "tool_mask" not in out:
        return [[len(ids)] * bool(ids) for ids in completion_ids]
    index = stretch_of(out)
    return [part.tolist() for part in tokens_of(index).split(counted(index).tolist())]


def advantages_of_tokens(values: torch.Tensor, lengths: torch.Tensor, out: dict, place: slice) -> torch.Tensor:
    """The advantages of the tokens of this process's rollouts, [B, T]; 0 where the model wrote nothing.

    values: [M], of the items of all processes' rollouts. lengths: [N].
    """
    ends = [0, *lengths.cumsum(0).tolist()]
    return onto_tokens(values[ends[place.start] : ends[place.stop]], lengths[place], stretch_of(out))


def means(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The mean of each rollout's items, [N], 0 if it has none. values: [M]. lengths: [N]."""
    of = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    sums = torch.zeros(len(lengths), dtype=values.dtype, device=values.device).index_add_(0, of, values)
    return sums / lengths.clamp(min=1)
