"""What prime-rl's file monitor writes: `RUN/rollouts/step_12/{train,eval}/{all,effective}/traces.jsonl`.

Source: prime-rl 0.8.0 (559b44772), src/prime_rl/monitors/file.py, `log_episodes`: an episode of verifiers a line, with
the group and the step that the orchestrator gave it. `effective` is what was trained on, `all` is what arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rewardspec.logs.columns import step_of
from rewardspec.logs.episodes import is_episode, of_episode
from rewardspec.logs.format import LINES, Format, Head, Rollout, Row


def _matches(head: Head) -> bool:
    runs = [row.get("run") for row in head.rows]
    return is_episode(head) and any(isinstance(run, dict) and run.get("type") == "train" for run in runs)


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    step = _folder(path)
    if step is None:
        run = row.get("run")
        work = run.get("work") if isinstance(run, dict) else None
        if not isinstance(work, dict) or "step" not in work:
            raise ValueError("has no step, `run.work.step`")
        step = step_of(work["step"])
    for rollout in of_episode(row):
        rollout.step = step
        yield rollout


def _folder(path: Path) -> int | None:
    """The step whose batch a file holds: its folder says so."""
    found = re.search(r"/step_(\d{1,15})/(?:train|eval)/(?:all|effective)/[^/]*$", path.absolute().as_posix())
    return int(found[1]) if found else None


def _lost(head: Head) -> Iterator[str]:
    if _folder(head.path) is None:
        yield "steps: the folders are gone, so a step is the one in which an episode began, not that of its batch"
    yield "advantages: missing for a rollout whose tokens have different ones"
    yield "traces: those of agents that are not trained, and episodes without a trace, are not read"


PRIME_RL = Format(
    name="prime-rl",
    about="prime-rl's `traces.jsonl`",
    marks="episodes of verifiers, with keys task, traces and env, of a run of training",
    kinds=(LINES,),
    matches=_matches,
    read=_read,
    lost=_lost,
    groups=lambda head: "",
    apart="name the files of one kind, as RUN/rollouts/step_*/train/effective",
)
