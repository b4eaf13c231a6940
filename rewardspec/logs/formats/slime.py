"""What slime writes with `--save-debug-rollout-data` or `--dump-details DIR`: `DIR/rollout_data/12.pt`.

Source: slime 0.3.1 (624b824a8), slime/observability/rollout_data_utils.py, `save_debug_rollout_data`, a torch file with
rollout_id and samples, which are `Sample.to_dict()` of slime/utils/types.py. It is loaded with `weights_only=True`: a
file that needs more, such as a reward that is a NumPy number, is not opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import group_id
from rewardspec.logs.format import TORCH, Batches, Format, Head, Rollout, Row, step_in, under, without

OF_TOKENS = (
    "tokens",
    "loss_mask",
    "rollout_log_probs",
    "rollout_top_p_token_ids",
    "rollout_top_p_token_offsets",
    "rollout_routed_experts",
    "teacher_log_probs",
    "multimodal_inputs",
    "multimodal_train_inputs",
    "weight_versions",
    "train_metadata",
    "spec_info",
    "prefix_cache_info",
)


def _matches(head: Head) -> bool:
    samples = head.rows[0].get("samples") if head.rows else None
    return head.has("rollout_id") and isinstance(samples, list) and all(_is_sample(one) for one in samples)


def _is_sample(value: Any) -> bool:
    return isinstance(value, dict) and {"group_index", "prompt", "response", "reward"} <= set(value)


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    step = step_in(row, "rollout_id")
    samples = row.get("samples")
    if not isinstance(samples, list):
        raise ValueError("`samples` is no list")
    for place, sample in enumerate(samples, 1):
        if not _is_sample(sample):
            raise ValueError(f"sample {place} has no group_index, prompt, response or reward")
        values = without(sample, *OF_TOKENS, "prompt", "response", "reward", "rollout_id")
        values = {str(name): _plain(value) for name, value in values.items()}
        values |= {"prompt": sample["prompt"], "completion": sample["response"]}
        values["rollout_id"] = sample.get("index") if sample.get("rollout_id") is None else sample["rollout_id"]
        reward = _plain(sample["reward"])
        if isinstance(reward, dict):
            under(values, "reward", reward)
        else:
            values["reward"] = reward
        group = sample["group_index"]
        yield Rollout(values, None if group is None else group_id(_plain(group)), step, place=(path, place))


def _plain(value: Any) -> Any:
    """A value without tensors: a tensor as its number, or its list."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _settle(batches: Batches) -> Batches:
    """Of the samples of one rollout, as agents make them, the last."""
    for batch in batches:
        last: dict[object, Rollout] = {}
        for place, rollout in enumerate(batch):
            number = rollout.values["rollout_id"]
            last[place if number is None else ("rollout", number)] = rollout
        yield list(last.values())


def _lost(head: Head) -> Iterator[str]:
    yield "advantages: slime computes them after it writes this file"
    rewards = [sample["reward"] for row in head.rows for sample in row["samples"] if _is_sample(sample)]
    if any(isinstance(reward, dict) for reward in rewards):
        yield "reward: which of the rewards was trained on, `--reward-key`, is not in the log"
    else:
        yield "components: the samples have their sum, `reward`"
    yield "samples: of the samples of one rollout the last is read"


SLIME = Format(
    name="slime",
    about="slime's dumps of rollouts",
    marks="rollout_id and samples with group_index, prompt, response and reward",
    kinds=(TORCH,),
    matches=_matches,
    read=_read,
    lost=_lost,
    groups=lambda head: "" if all(s.get("group_index") is not None for r in head.rows for s in r["samples"]) else None,
    settle=_settle,
    apart="files whose names begin with `eval_` are evaluations: name the others, as rollout_data/[0-9]*.pt",
)
