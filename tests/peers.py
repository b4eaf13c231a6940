"""The peers' own code, to compare with: TRL's advantage block and verl's estimators, as installed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import torch

LOGGED = "is_std_zero"


class _WithoutLog(ast.NodeTransformer):
    def visit_Assign(self, node):
        return None if ast.unparse(node.targets[0]) == LOGGED else node


@cache
def _trl_block(name: str = "GRPO") -> Callable:
    """TRL's code from rewards per function to advantages, cut out of the method of the trainer it sits in.

    The lines that set `is_std_zero`, which TRL only logs, are left out: up to a tenth of its time goes into them.
    """
    module = import_module(f"trl.trainer.{name.lower()}_trainer")
    method = getattr(module, f"{name}Trainer")._generate_and_score_completions
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
    function = _WithoutLog().visit(function)
    if any(isinstance(node, ast.Name) and node.id == LOGGED for node in ast.walk(function)):
        raise RuntimeError(f"TRL's advantages depend on `{LOGGED}`, which TRL 1.16.0 only logs")
    block = ast.fix_missing_locations(ast.Module([function], []))
    space = dict(vars(module))
    exec(compile(block, f"<the advantage block of trl.{name}Trainer>", "exec"), space)
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


def trl_rloo(rewards: torch.Tensor, weights: torch.Tensor, group_size: int, normalize: bool = False) -> torch.Tensor:
    """Advantages [N] of TRL's RLOO trainer for rewards [N, K]. normalize: its `normalize_advantages`."""
    trainer = SimpleNamespace(reward_weights=weights, reward_clip_range=None, beta=0.0, normalize_advantages=normalize)
    return _trl_block("RLOO")(trainer, rewards, group_size, rewards.device)


def verl_estimator(name: str, totals: torch.Tensor, tokens: torch.Tensor, index: np.ndarray) -> torch.Tensor:
    """Advantages [N] of a verl estimator for totals [N] and responses of `tokens` [N] tokens.

    They are one number for all tokens of a response, or this raises.
    """
    from verl.trainer.ppo import core_algos

    mask = (torch.arange(int(tokens.max())) < tokens[:, None]).float()
    rewards = torch.zeros_like(mask)
    rewards[torch.arange(len(totals)), tokens.long() - 1] = totals
    return _of_responses(core_algos.get_adv_estimator_fn(name)(rewards, mask, index=index)[0], mask)


def _of_responses(advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    torch.testing.assert_close(advantages, advantages[:, :1] * mask)
    return advantages[:, 0]


def verl_gdpo(
    rewards: torch.Tensor, weights: list[float], group_size: int, tokens: torch.Tensor | None = None
) -> torch.Tensor:
    """Advantages [N] of verl's `gdpo` estimator; tokens [N]: lengths of the responses, 1 if not said."""
    from verl.trainer.ppo import core_algos

    n, k = rewards.shape
    tokens = torch.ones(n) if tokens is None else tokens
    mask = (torch.arange(int(tokens.max())) < tokens[:, None]).float()
    names = [f"r{i}" for i in range(k)]
    advantages, _ = core_algos.get_adv_estimator_fn("gdpo")(
        token_level_rewards=torch.zeros_like(mask),  # the components are what it reads
        response_mask=mask,
        index=np.repeat(np.arange(n // group_size), group_size).astype(object),
        config={"gdpo_reward_keys": names, "gdpo_reward_weights": weights},
        non_tensor_batch={name: rewards[:, i].numpy() for i, name in enumerate(names)},
        batch={
            "prompts": torch.zeros(n, 1, dtype=torch.long),
            "attention_mask": torch.cat([mask[:, :1], mask], 1).long(),
        },
    )
    return _of_responses(advantages, mask)
