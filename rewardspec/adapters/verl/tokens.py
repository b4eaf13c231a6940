"""Reward tokens (`condition:`) in verl's prompts: drawn in the trainer, inserted where a rollout starts."""

from __future__ import annotations

import numpy as np

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.verl.rollouts import TOKEN, plain
from rewardspec.reward_tokens import RewardTokens


def draw_for_prompts(trainer, batch) -> None:
    """Add the names of their tokens to prompts in V1, a list for each prompt, which stands for all its rollouts."""
    from tensordict.tensorclass import NonTensorData, NonTensorStack

    condition, seed, step = trainer.rewardspec.spec.condition, trainer.rewardspec.seed, trainer.global_steps
    if "__rollout_n__" in batch.keys():  # noqa: SIM118 - a TensorDict
        sizes = [int(plain(n)) for n in batch["__rollout_n__"]]
    else:
        sizes = [trainer.config.actor_rollout_ref.rollout.n] * len(batch)
    at, before = getattr(trainer, "_rewardspec_submitted", (step, 0))
    before = before if at == step else 0  # prompts of a step can come in several batches: each has a separate place
    places = range(before, before + len(sizes))
    groups = [*range(before), *(place for place, n in zip(places, sizes, strict=True) for _ in range(n))]
    names = iter(condition.draw(groups, seed, step)[before:])
    batch[TOKEN] = NonTensorStack(*[NonTensorData([next(names) for _ in range(n)]) for n in sizes])
    trainer._rewardspec_submitted = step, before + len(sizes)


def draw_for_rollouts(spec_and_seed, prompts) -> None:
    """Add the name of its token to every rollout in V0, where each has a row."""
    spec, seed = spec_and_seed
    names = spec.condition.draw(list(prompts.non_tensor_batch["uid"]), seed, prompts.meta_info["global_steps"])
    prompts.non_tensor_batch[TOKEN] = np.array(names, dtype=object)


def conditioned(condition: RewardTokens, rollout: dict, validate: bool) -> dict:
    """The input of an agent loop: `rollout` with its token in the prompt; in validation with the best token."""
    names = condition.best if validate else rollout.get(TOKEN)
    if names is None:
        raise BindingError("this rollout has no reward token: the adapter is not in force in the trainer")
    name = names if isinstance(names, str) else names[rollout["session_id"]]
    return rollout | {TOKEN: name, "raw_prompt": condition.render(list(rollout["raw_prompt"]), name)}
