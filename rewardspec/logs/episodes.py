"""Episodes of verifiers: an object with the traces of the agents that played it, as verifiers and prime-rl write it.

Source: verifiers 0.3 (a60a606ec), verifiers/v1/episode.py and trace.py. A trace has `rewards`, name to score and
weight, `metrics`, and `nodes`: messages with a mask of the tokens that the model sampled, and their advantages.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from typing import Any

from rewardspec.logs.format import Head, Rollout, Row, text_of, under

OWN = ("task", "traces", "env")


def is_episode(head: Head) -> bool:
    return head.has(*OWN) and all(isinstance(row.get("traces"), list) for row in head.rows)


def of_episode(row: Row) -> Iterator[Rollout]:
    """The rollouts of an episode: the traces that are trained. Raises ValueError with the reason."""
    traces = row.get("traces")
    if not isinstance(traces, list) or not isinstance(row.get("task"), dict):
        raise ValueError("is no episode: it has no task, or no list of traces")
    group = _group(row)
    for trace in traces:
        if not isinstance(trace, dict) or not isinstance(trace.get("rewards", {}), dict):
            raise ValueError("has a trace that is no object with rewards")
        told = trace.get("agent")
        agent = told if isinstance(told, dict) else {}
        if agent.get("trainable", True):
            yield Rollout(_values(row, trace, agent), group, None, _advantage(trace))


def _group(row: Row) -> Hashable:
    group, task = row.get("group"), row["task"]
    if isinstance(group, dict) and isinstance(group.get("id"), str | int):
        return str(group["id"])
    key = task.get("key") or task.get("hash")
    return str(key) if key else json.dumps(task.get("data"), sort_keys=True, default=repr)


def _values(row: Row, trace: Row, agent: Row) -> dict[str, Any]:
    nodes = [node for node in trace.get("nodes") or [] if isinstance(node, dict)]
    first = next((place for place, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    told = [node.get("message") for node in nodes]
    env = row["env"] if isinstance(row.get("env"), dict) else {}
    values: dict[str, Any] = {
        "prompt": text_of(told[:first]) if told[:first] else None,
        "completion": text_of(told[first:]) if told[first:] else None,
        "env": env.get("name") or env.get("id"),
        "agent": agent.get("name"),
        "ok": trace.get("ok"),
        "stop_condition": trace.get("stop_condition"),
        "tokens": sum(sum(map(bool, node.get("mask") or [])) for node in nodes),
    }
    rewards = {name: one for name, one in (trace.get("rewards") or {}).items()}
    under(values, "rewards", {name: _of(one, "score") for name, one in rewards.items()})
    under(values, "rewards", {f"{name}.weight": _of(one, "weight") for name, one in rewards.items()})
    under(values, "metrics", trace.get("metrics"))
    return values


def _of(reward: Any, what: str) -> Any:
    if isinstance(reward, dict):
        return reward.get(what, 1.0 if what == "weight" else None)
    return reward if what == "score" else None


def _advantage(trace: Row) -> float | None:
    """The advantage of the tokens that the model sampled; None if they differ, or none was assigned."""
    found = {one for node in trace.get("nodes") or [] if isinstance(node, dict) for one in node.get("advantages") or []}
    if len(found) != 1:
        return None
    (one,) = found
    if isinstance(one, bool) or not isinstance(one, int | float):
        raise ValueError("has an advantage that is no number")
    return float(one)
