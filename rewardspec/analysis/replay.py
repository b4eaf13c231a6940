"""Rollouts that a trainer has logged, and what a spec would have made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewardspec.analysis.simulate import Signal
from rewardspec.compiler import Spec, compile
from rewardspec.diagnostics import did_you_mean, shorten

GROUP_KEYS = (
    "group",
    "uid",
    "prompt_id",
    "prompt",
    "input",
)  # what trainers call the prompt of a rollout, the best first
STEP_KEYS = ("step", "global_step")
ALIASES = {"tokens": ("completion_length", "response_length", "num_tokens")}  # of columns that adapters fill in


class BadLog(ValueError):
    """A rollout log that cannot be read, or lacks what the spec reads."""


@dataclass(frozen=True)
class Log:
    """Logged rollouts: columns of the spec, and for each the group and the step that it belongs to."""

    columns: Mapping[str, list]
    groups: Sequence
    steps: Sequence


def read_log(path: Path, spec: Spec, group_by: str | None = None) -> Log:
    """The rollouts of a JSON lines or Parquet file, as TRL and verl write them.

    Columns are found by name, on their own or under `rewards`. Rollouts of one prompt and step are a
    group. Raises BadLog, OSError.
    """
    rows = read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _json_lines(path)
    if not rows:
        raise BadLog(f"{path} holds no rollouts")
    found = list(dict.fromkeys(key for row in rows for key in row))
    keys = [group_by] if group_by else [key for key in GROUP_KEYS if key in found][:1]
    if not keys or keys[0] not in found:
        wanted = f"`{group_by}`" if group_by else " or ".join(f"`{k}`" for k in GROUP_KEYS)
        raise BadLog(f"{path} has no column {wanted} that tells groups apart; it has {listed(found)}")
    names = {}
    for name in spec.columns:
        names[name] = next((n for n in (name, *ALIASES.get(name, ())) if n in found), None)
    missing = [name for name, source in names.items() if source is None]
    if missing:
        hints = [f"`{name}`" + (f" ({near})" if (near := did_you_mean(name, found)) else "") for name in missing]
        raise BadLog(f"{path} has no column {', '.join(hints)}, which {spec.name} reads; it has {listed(found)}")
    step = next((key for key in STEP_KEYS if key in found), None)
    steps = [row.get(step) if step else 0 for row in rows]
    groups = [(s, hashable(row.get(keys[0]))) for s, row in zip(steps, rows, strict=True)]
    return Log({name: [row.get(source) for row in rows] for name, source in names.items()}, groups, steps)


def _json_lines(path: Path) -> list[dict]:
    rows = []
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise BadLog(f"{path}:{number}: not JSON: {shorten(str(error), 80)}") from None
            if not isinstance(row, dict):
                raise BadLog(f"{path}:{number}: a JSON object is wanted, one for each rollout")
            inner = row.pop("rewards", None)
            rows.append({**inner, **row} if isinstance(inner, dict) else row)
    return rows


JSON_TEXT = {b"rewardspec": b"json"}  # marks a column that holds values as JSON text


def read_parquet(path: Path) -> list[dict]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadLog("reading Parquet needs pyarrow: pip install 'rewardspec[logs]'") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise BadLog(f"{path} is no Parquet file: {shorten(str(error), 80)}") from None
    rows = table.to_pylist()
    for name in [field.name for field in table.schema if (field.metadata or {}).items() >= JSON_TEXT.items()]:
        for row in rows:
            row[name] = None if row[name] is None else json.loads(row[name])
    return rows


def hashable(value) -> object:
    return value if isinstance(value, str | int | float | None) else json.dumps(value, sort_keys=True, default=str)


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{shorten(str(name))}`" for name in names[:12])
    return shown + (" ..." if len(names) > 12 else "")


@dataclass(frozen=True)
class Replay:
    """What a spec makes of a log: sizes, and its signal over all of it, the step over the batch included."""

    rollouts: int
    groups: int
    steps: int
    signal: Signal

    def to_json(self) -> dict:
        return asdict(self)


def by_step(spec: Spec, log: Log, total_steps: int | None = None) -> Iterator[tuple[list[int], Any]]:
    """Each step of a log as a batch of its own: its rows and the Result. Raises BadLog."""
    fn = compile(spec)
    places: dict = {}
    for i, step in enumerate(log.steps):
        places.setdefault(step, []).append(i)
    last = total_steps or max((step for step in places if isinstance(step, int)), default=None)
    for step, rows in places.items():
        columns = {name: [values[i] for i in rows] for name, values in log.columns.items()}
        ids = [log.groups[i] for i in rows]
        try:
            out = fn(columns, ids, step=step if isinstance(step, int) else None, total_steps=last)
        except ValueError as error:
            raise BadLog(f"{spec.name}, step {step}: {error}") from None
        yield rows, out


def replay(spec: Spec, log: Log, total_steps: int | None = None) -> Replay:
    """The spec run over a log, step by step. Raises BadLog for rollouts that it cannot be computed on."""
    advantages, shares, dead, spread, groups, steps = [], [], 0, 0.0, 0, 0
    for rows, out in by_step(spec, log, total_steps):
        found = out.metrics()
        count = len({log.groups[i] for i in rows})
        steps += 1
        groups += count
        dead += round(found["groups_without_signal"] * count)
        spread += found["advantage_spread"] * count
        advantages.append(out.advantages.double().numpy())
        shares.append(out.shares)
    whole = np.concatenate(advantages)
    signal = Signal(dead / groups, float((whole == 0).mean()), spread / groups, _variance_shares(spec, whole, shares))
    return Replay(len(whole), groups, steps, signal)


def _variance_shares(spec: Spec, advantage: np.ndarray, shares: list) -> dict[str, float] | None:
    if any(found is None for found in shares):
        return None
    centered = advantage - advantage.mean()
    variance = float(centered @ centered)
    if variance == 0:
        return None
    return {
        name: float(np.concatenate([found[name].double().numpy() for found in shares]) @ centered) / variance
        for name in spec.components
    }
