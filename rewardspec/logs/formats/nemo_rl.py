"""What NeMo-RL's GRPO writes into its log folder: `train_data_step12.jsonl`.

Source: NeMo-RL 0.6.0 (7ea279abf), nemo_rl/algorithms/grpo.py, grpo_sync.py and ppo.py, which give content, rewards,
input_lengths, token_ids, token_loss_mask, sample_loss_mask, advantages and log-probabilities to
nemo_rl/utils/logger.py, `log_batched_dict_as_jsonl`: a row for each rollout, every value a list of one, and `idx`.
It is not written with `env.should_log_nemo_gym_responses`. `val_data_step*.jsonl` has no advantages and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rewardspec.logs.format import LINES, Format, Head, Rollout, Row, without

OWN = ("rewards", "input_lengths", "token_loss_mask", "advantages", "idx")
TOKENS = ("token_ids", "token_loss_mask", "sample_loss_mask", "generation_logprobs", "prev_logprobs")


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    lacks = [name for name in OWN if name not in row]
    if lacks:
        raise ValueError(f"has no `{lacks[0]}`")
    row = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in row.items()}
    mask = row["token_loss_mask"]
    if not isinstance(mask, list) or not all(one in (0, 1) for one in mask):
        raise ValueError("`token_loss_mask` is no list of 0 and 1")
    values = without(row, *TOKENS, "advantages", "content", *(["rewards"] if "filtered_rewards" in row else []))
    values["tokens"] = sum(map(int, mask))
    ids = row.get("token_ids")
    if isinstance(ids, list) and 1 in mask:
        values["prompt_id"] = blake2b(repr(ids[: mask.index(1)]).encode(), digest_size=8).hexdigest()
    yield Rollout(values | _texts(row.get("content"), mask), None, _step(path), _advantage(row["advantages"], mask))


def _texts(content: Any, mask: list[Any]) -> dict[str, Any]:
    """Prompt and completion of one turn; of several nobody knows which texts are the model's, so all are in one."""
    if isinstance(content, str):
        return {"completion": content}
    if not isinstance(content, list) or not content:
        return {}
    texts = [str(one) for one in content]
    turns = sum(1 for last, now in zip([0, *mask], mask, strict=False) if now and not last)
    if turns == 1 and len(texts) > 1:
        return {"prompt": "\n\n".join(texts[:-1]), "completion": texts[-1]}
    return {"prompt": None, "completion": "\n\n".join(texts)}


def _advantage(advantages: Any, mask: list[Any]) -> float | None:
    """The advantage of the tokens that are trained; None if they differ."""
    if isinstance(advantages, int | float):
        return float(advantages)
    if not isinstance(advantages, list):
        raise ValueError("`advantages` is no list of numbers")
    found = {one for one, trained in zip(advantages, mask, strict=False) if trained}
    if not all(isinstance(one, int | float) for one in found):
        raise ValueError("`advantages` is no list of numbers")
    return float(found.pop()) if len(found) == 1 else None


def _step(path: Path) -> int | None:
    """The step, which is in the file's name alone."""
    found = re.search(r"step(\d{1,15})", path.name)
    return int(found[1]) if found else None


def _lost(head: Head) -> Iterator[str]:
    yield "components: NeMo-RL logs the sum, `rewards`; what it was added from is not in the log"
    if head.has("filtered_rewards"):
        yield "rewards: `filtered_rewards` are those of the rows; `rewards` are of the batch before it was filtered"
    if not head.has("token_ids"):
        yield "groups: the log has no tokens, so that no prompt is known exactly"
    yield "advantages: missing for a rollout whose tokens have different ones"
    yield "texts: of a rollout of several turns all texts are in `completion`: the log does not say who wrote which"


NEMO_RL = Format(
    name="nemo-rl",
    about="NeMo-RL's `train_data_step*.jsonl`",
    marks="keys rewards, input_lengths, token_loss_mask, advantages and idx",
    kinds=(LINES,),
    matches=lambda head: head.has(*OWN),
    read=_read,
    lost=_lost,
    offers=("prompt_id",),
)
