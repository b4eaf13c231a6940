"""Lists inside rollouts in OpenRLHF: what each step of an agent measured, and advantages of items on their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from rewardspec.adapters.common.lists import as_list
from rewardspec.adapters.common.stretches import check_stretches, onto_tokens

STEPS = "rewardspec_steps"  # in the response of an agent executor: what each step measured
running: ContextVar[list | None] = ContextVar("rewardspec_steps", default=None)  # of one rollout


@dataclass(frozen=True)
class Turns:
    """The lists of one rollout by name, and the ranges of tokens that the model wrote, one for each step."""

    lists: Mapping[str, list]
    ranges: Sequence[tuple[int, int]]


def recorded(agent: type) -> type:
    """An agent's class that records what each step of a rollout measured."""

    class Recorded(agent):
        async def step(self, *args, **kwargs):
            found = await super().step(*args, **kwargs)
            steps = running.get()
            if steps is not None:
                steps.append({**(found.get("extra_logs") or {}), "reward": found["rewards"]})
            return found

    Recorded.__name__, Recorded.__qualname__, Recorded.__module__ = agent.__name__, agent.__qualname__, agent.__module__
    return Recorded


def separated(response: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], Turns]:
    """A response without the columns of lists in `extra_logs`, where OpenRLHF carries one number, and its turns.

    names: the columns. A list is a value of `extra_logs` that is one, at the last step; else the values of all steps,
    None for a step without it. `[[1.0]]` is a list of one item, unless an earlier step has the name, too: `[1.0]` is a
    number, as agents return them.
    """
    logs, steps = dict(response.get("extra_logs") or {}), response.get(STEPS)
    lists = {}
    for name in names:
        value = as_list(logs[name]) if name in logs else None
        inner = value[0] if isinstance(value, list) and len(value) == 1 else None
        if isinstance(inner, list) and not any(name in step for step in (steps or [])[:-1]):
            lists[name] = inner
        elif isinstance(value, list) and not (steps and len(value) == 1):
            lists[name] = value
        elif steps is not None and (name != "tokens" or any(name in step for step in steps)):
            lists[name] = [_number(step.get(name)) for step in steps]
        elif isinstance(value, list):
            lists[name] = value
    rest = {name: value for name, value in logs.items() if name not in names}
    return {**response, "extra_logs": rest}, Turns(lists, list(response["action_ranges"]))


def _number(value: Any) -> Any:
    """A value of one step, out of a tensor or list of one."""
    value = as_list(value)
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


def places(turns: Turns, width: int) -> torch.Tensor:
    """The turn of each place of the action mask, [width], from 0; -1 for tokens of others. A mask begins at token 1."""
    index = torch.full((width,), -1, dtype=torch.long)
    for turn, (start, end) in enumerate(turns.ranges):
        index[max(start - 1, 0) : max(end - 1, 0)] = turn
    return index


def column(turns: Sequence[Turns], name: str, widths: Sequence[int]) -> list:
    """The lists of a name; of `tokens` those that each turn has within its mask."""
    if name != "tokens" or any("tokens" in found.lists for found in turns):
        return [found.lists.get(name) for found in turns]
    counts = []
    for found, width in zip(turns, widths, strict=True):
        index = places(found, width)
        counts.append([int((index == turn).sum()) for turn in range(len(found.ranges))])
    return counts


def token_advantages(
    name: str, values: torch.Tensor, lengths: torch.Tensor, turns: Sequence[Turns], experiences: Sequence, size: int
) -> list[torch.Tensor]:
    """The advantages of each experience's tokens, [B, A] float32; 0 for tokens of others.

    values: [M], of the list `name`, rollouts by their place. lengths: [N]. size: of a group. Raises BindingError for
    rollouts that do not have as many action ranges as items.
    """
    found = torch.tensor([len(of.ranges) for of in turns])
    check_stretches(name, lengths, found, groups=[row // size for row in range(len(turns))])
    parts = values.split(lengths.tolist())
    made = []
    for experience in experiences:
        width = experience.action_mask.shape[1]
        index = torch.stack([places(turns[place], width) for place in experience.index])
        own = torch.cat([parts[place] for place in experience.index])
        made.append(onto_tokens(own, lengths[torch.tensor(experience.index)], index).to(experience.action_mask.device))
    return made
