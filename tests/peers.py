"""The peers' own code, to compare with: TRL's advantage block and verl's estimators, as installed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch


@cache
def _trl_block() -> Callable:
    """TRL's code from rewards per function to advantages, cut out of the trainer method it sits in."""
    from trl.trainer import grpo_trainer

    method = grpo_trainer.GRPOTrainer._generate_and_score_completions
    body = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0].body
    names = [
        node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else ""
        for node in body
    ]
    try:
        start = names.index("unscorable_mask")
        end = next(i for i in range(start, len(body)) if names[i] == "advantages" and "nan_to_num" in ast.dump(body[i]))
    except (ValueError, StopIteration):
        raise RuntimeError("TRL's advantage block is not where TRL 1.16.0 has it") from None
    function = ast.parse("def block(self, rewards_per_func, num_generations, device): return advantages").body[0]
    function.body = [*body[start : end + 1], *function.body]
    module = ast.fix_missing_locations(ast.Module([function], []))
    space = dict(vars(grpo_trainer))
    exec(compile(module, "<the advantage block of trl.GRPOTrainer>", "exec"), space)
    return space["block"]


def trl_advantages(
    rewards: torch.Tensor, weights: torch.Tensor, group_size: int, aggregation: str, scale: str = "group"
) -> torch.Tensor:
    """Advantages [N] of TRL's GRPO trainer for rewards [N, K], in float32 as there.

    aggregation: "sum_then_normalize" or "normalize_then_sum" (TRL's GDPO). scale: its `scale_rewards`.
    """
    trainer = SimpleNamespace(
        multi_objective_aggregation=aggregation,
        reward_weights=weights,
        reward_funcs=[None] * rewards.shape[1],
        scale_rewards=scale,
    )
    return _trl_block()(trainer, rewards, group_size, rewards.device)


def verl_gdpo(rewards: torch.Tensor, weights: list[float], group_size: int) -> torch.Tensor:
    """Advantages [N] of verl's `gdpo` estimator, every response one token long."""
    from verl.trainer.ppo import core_algos

    n, k = rewards.shape
    names = [f"r{i}" for i in range(k)]
    advantages, _ = core_algos.get_adv_estimator_fn("gdpo")(
        token_level_rewards=rewards.sum(1, keepdim=True),
        response_mask=torch.ones(n, 1),
        index=np.repeat(np.arange(n // group_size), group_size).astype(object),
        config={"gdpo_reward_keys": names, "gdpo_reward_weights": weights},
        non_tensor_batch={name: rewards[:, i].numpy() for i, name in enumerate(names)},
        batch={"prompts": torch.zeros(n, 1, dtype=torch.long), "attention_mask": torch.ones(n, 2, dtype=torch.long)},
    )
    return advantages[:, 0]
