"""What NeMo Gym collects: `--output rollouts.jsonl`.

Source: NeMo Gym 0.5.1 (07d6b0d07), nemo_gym/rollout_collection.py, which adds `_ng_task_index`, `_ng_rollout_index` and
`agent_ref` to what a resources server answers: nemo_gym/base_resources_server.py, `BaseVerifyResponse` with
responses_create_params, response and reward, `BaseMultiRewardVerifyResponse` with reward_components, and fields of the
environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import group_id
from rewardspec.logs.format import LINES, Format, Head, Rollout, Row, text_of, under, without

OWN = ("responses_create_params", "response", "reward")
TASK = "_ng_task_index"


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    lacks = [name for name in OWN if name not in row]
    if lacks:
        raise ValueError(f"has no `{lacks[0]}`")
    asked, answer = row["responses_create_params"], row["response"]
    if not isinstance(asked, dict) or not isinstance(answer, dict | None):
        raise ValueError("`responses_create_params` and `response` are no objects")
    answer = answer or {}
    values = without(row, "responses_create_params", "response", "reward_components")
    values |= {"prompt": _text(asked.get("input")), "completion": _text(answer.get("output"))}
    usage = answer.get("usage")
    if isinstance(usage, dict):
        values.setdefault("output_tokens", usage.get("output_tokens"))
    under(values, "reward_components", row.get("reward_components"))
    yield Rollout(values, None if row.get(TASK) is None else group_id(row[TASK]))


def _text(items: Any) -> str | None:
    """Messages, calls and answers of tools, as the API of responses has them."""
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        return text_of(items)
    plain = [without(one, "id", "type", "status") for one in items]
    return text_of([{"role": one.get("type"), **rest} for one, rest in zip(items, plain, strict=True)])


def _lost(head: Head) -> Iterator[str]:
    yield "advantages: NeMo Gym computes none"
    if not head.has("reward_components"):
        yield "components: this environment has no `reward_components`; its other fields are columns"


NEMO_GYM = Format(
    name="nemo-gym",
    about="NeMo Gym's rollouts",
    marks="keys responses_create_params, response and reward",
    kinds=(LINES,),
    matches=lambda head: head.has(*OWN),
    read=_read,
    lost=_lost,
    groups=lambda head: "" if head.has(TASK) else None,
)
