"""What evaluations of verifiers write: `traces.jsonl`, and `results.jsonl` before.

Source: verifiers 0.3 (a60a606ec), verifiers/v1/cli/output.py, `write_episode`: an episode a line. Before:
verifiers/legacy/utils/save_utils.py, `state_to_output`: a row for each rollout with example_id, prompt, completion,
reward and metrics, whose names are also keys of the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rewardspec.logs.columns import group_id
from rewardspec.logs.episodes import is_episode, of_episode
from rewardspec.logs.format import LINES, Format, Head, Rollout, Row, under, without

RESULT = ("example_id", "prompt", "completion", "reward")


def _matches(head: Head) -> bool:
    runs = [row.get("run") for row in head.rows]
    trained = any(isinstance(run, dict) and run.get("type") == "train" for run in runs)
    return head.has(*RESULT) or (is_episode(head) and not trained)


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    if "traces" in row:
        yield from of_episode(row)
        return
    lacks = [name for name in RESULT if name not in row]
    if lacks:
        raise ValueError(f"has no `{lacks[0]}`")
    values = without(row, "metrics", "trajectory", "tool_defs")
    metrics = row.get("metrics")
    under(values, "metrics", {k: v for k, v in metrics.items() if k not in row} if isinstance(metrics, dict) else None)
    task = (row["task"],) if isinstance(row.get("task"), str) else ()
    yield Rollout(values, (*task, group_id(row["example_id"])))


def _lost(head: Head) -> Iterator[str]:
    if head.has(*RESULT):
        yield "weights: `results.jsonl` has rewards without their weights"
        yield "advantages: an evaluation computes none"
    else:
        yield "advantages: an evaluation computes none; missing for a rollout whose tokens have different ones"
        yield "traces: those of agents that are not trained, and episodes without a trace, are not read"


VERIFIERS = Format(
    name="verifiers",
    about="verifiers' `traces.jsonl` or `results.jsonl`",
    marks="keys task, traces and env, or example_id, prompt, completion and reward",
    kinds=(LINES,),
    matches=_matches,
    read=_read,
    lost=_lost,
    groups=lambda head: "",
)
