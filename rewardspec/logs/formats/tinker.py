"""What tinker-cookbook writes with `rollout_json_export`: `iteration_000012/train_rollout_summaries.jsonl`.

Source: tinker-cookbook 0.5.5 (9dfcc3a2c), tinker_cookbook/rl/rollout_logging.py, `serialize_rollout_summaries`: a row
for each trajectory with total_reward, trajectory_metrics, and for each of its steps reward, metrics and logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import group_id
from rewardspec.logs.format import LINES, Format, Rollout, Row, step_in, under, without

OWN = ("schema_version", "iteration", "group_idx", "traj_idx", "total_reward", "steps")


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    lacks = [name for name in OWN if name not in row]
    if lacks:
        raise ValueError(f"has no `{lacks[0]}`")
    steps = row["steps"]
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError("`steps` is no list of objects")
    values = without(row, "schema_version", "iteration", "group_idx", "trajectory_metrics", "steps")
    under(values, "trajectory_metrics", row.get("trajectory_metrics"))
    metrics = [step.get("metrics") if isinstance(step.get("metrics"), dict) else {} for step in steps]
    if len(steps) == 1:
        under(values, "metrics", metrics[0])
    lists: dict[str, list[Any]] = {
        name: [s.get(name) for s in steps] for name in ("reward", "ob_len", "ac_len", "logs")
    }
    lists |= {name: [one.get(name) for one in metrics] for name in dict.fromkeys(k for one in metrics for k in one)}
    values |= {f"steps.{name}": held for name, held in lists.items()}
    lengths = lists["ac_len"]
    if all(isinstance(one, int) for one in lengths):
        values["tokens"] = sum(lengths)
    yield Rollout(values, group_id(row["group_idx"]), step_in(row, "iteration"))


TINKER = Format(
    name="tinker",
    about="tinker-cookbook's `*_rollout_summaries.jsonl`",
    marks="keys schema_version, iteration, group_idx, traj_idx, total_reward and steps",
    kinds=(LINES,),
    matches=lambda head: head.has(*OWN),
    read=_read,
    lost=lambda head: (
        "texts: tinker-cookbook logs the lengths of prompts and completions alone",
        "advantages: tinker-cookbook logs none",
    ),
    groups=lambda head: "",
    apart="training and evaluations are apart: name one kind, as iteration_*/train_rollout_summaries.jsonl",
)
