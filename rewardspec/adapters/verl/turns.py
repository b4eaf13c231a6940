"""Lists inside rollouts in verl: how they reach the trainer, and advantages of items on the tokens of their turn."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import torch

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.lists import as_list
from rewardspec.adapters.common.stretches import check_stretches, counted, onto_tokens, stretches, tokens_of

CALLS = "tool_rewards"  # verl's own tool agent: a reward for each call, and turns can be without a call
TURNS = "rewardspec_turns"  # the turn of each of them, from 0


def as_text(info: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What `compute_score` returned, with lists as JSON, and with tensors and arrays of `names`.

    verl puts the values of a name into one array and averages them in validation, which fails for lists of unequal
    length; it carries texts and leaves them out of averages.
    """
    return {
        name: _text(value) if name in names or isinstance(value, list | tuple) else value
        for name, value in info.items()
    }


def _text(value: Any) -> Any:
    value = items(value)
    try:
        return json.dumps(value, default=lambda x: x.item()) if isinstance(value, list) else value
    except (TypeError, ValueError, AttributeError, RecursionError):
        return value  # the compiled function says what is wrong with it


def items(value: Any) -> Any:
    """A list, out of its wrapper, tensor, array or JSON; other values as they are."""
    if type(value).__name__.startswith("NonTensor"):
        value = value.data
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    return as_list(value)


def of_turns(rewards: Sequence, turns: Sequence | None, counts: Sequence[int], groups: Sequence[Hashable]) -> list:
    """The reward of each turn's tool call, None for turns without one, from the rewards of calls.

    rewards: a list for each rollout. turns: the turn of each of them, or None for an agent that does not record it:
    then it has a reward for each turn. counts: turns of each rollout. Raises BindingError for two calls in one turn,
    and for one in a turn that the rollout does not have, unless it has none: then nothing of it is trained on.
    """
    found = []
    for row, (given, at, count) in enumerate(zip(rewards, turns or [None] * len(rewards), counts, strict=True)):
        at = [] if at is None and given == [] else at  # no tool was called
        if not isinstance(at, list) or not isinstance(given, list) or len(at) != len(given):
            found.append(given)
            continue
        if len({*at}) < len(at):
            turn = next(turn for turn in at if at.count(turn) > 1)
            raise BindingError(
                f"rollout {row} of group {groups[row]} has {at.count(turn)} rewards of tools in turn {turn + 1}, and a "
                "turn has one value: set actor_rollout_ref.rollout.multi_turn.max_parallel_calls=1, or return a value "
                "for each turn from compute_score, under another name"
            )
        if count and at and max(at) >= count:
            raise BindingError(
                f"rollout {row} of group {groups[row]} has a reward of a tool in turn {max(at) + 1}, and the model "
                f"wrote {count} stretch{'es' * (count != 1)} of tokens: turns with nothing between them are one "
                "stretch; let the tool answer with a text, or return a value for each stretch from compute_score"
            )
        of_turn = dict(zip(at, given, strict=True))
        found.append([of_turn.get(turn) for turn in range(count)])
    return found


class Written:
    """The stretches that the model wrote in the rows of each rollout; a stretch is a turn.

    mask: [R, L], 1 for tokens of the model, as the agent loop returned it: later corrections only take tokens out of
    the loss. rows: how many rows each of N rollouts has, in order.
    """

    def __init__(self, mask: torch.Tensor, rows: Sequence[int]):
        self.index = stretches(mask)
        self.of_row = counted(self.index)
        self.counts = torch.stack([part.sum() for part in self.of_row.split(list(rows))])  # [N]

    def tokens(self) -> list[list[int]]:
        """How many tokens each turn of each rollout has."""
        return [part.tolist() for part in tokens_of(self.index).split(self.counts.tolist())]

    def advantages(self, name: str, values: torch.Tensor, lengths: torch.Tensor, groups: Sequence) -> torch.Tensor:
        """The advantages of items on the tokens of their turns, [R, L]; 0 elsewhere.

        values: [M], of the list `name`. lengths: [N]. Raises BindingError for rollouts that do not have as many turns
        as items; one without tokens has nothing to train.
        """
        empty = self.counts == 0
        check_stretches(name, lengths, self.counts, hidden=empty, groups=groups)
        values = values[~empty.repeat_interleave(lengths)]
        return onto_tokens(values, self.of_row, self.index)
