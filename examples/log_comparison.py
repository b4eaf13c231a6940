"""Advantages of several specs on one rollout log."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import rewardspec
from rewardspec.prove.replay import Log, read_log

FOLDER = Path(__file__).resolve().parent / "trl"
LOG = FOLDER / "rollouts.parquet"
SPEC = FOLDER / "tools_grpo.yaml"
SCHEMES = {"GRPO": "grpo", "GRPO without std": "dr_grpo", "GDPO": "gdpo"}
DIGITS = 4  # advantages that agree to these count as equal


def advantages(spec: rewardspec.Spec, log: Log) -> np.ndarray:
    """[N] advantages; each step is one batch, as in training."""
    fn = rewardspec.compile(spec)
    found = np.zeros(len(log.steps), dtype=np.float32)
    for step, rows in places(log.steps).items():
        columns = {name: [values[i] for i in rows] for name, values in log.columns.items()}
        found[rows] = fn(columns, [log.groups[i] for i in rows], step=step).advantages.numpy()
    return found


def places(keys) -> dict:
    """Key to the rows that have it."""
    found: dict = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return found


def levels(values: np.ndarray, log: Log) -> float:
    """Distinct advantages in a step, mean over steps. The batch's normalisation differs between steps."""
    return float(np.mean([len(np.unique(values[rows].round(DIGITS))) for rows in places(log.steps).values()]))


def distinct_groups(values: np.ndarray, log: Log) -> float:
    """Distinct advantage groups in a step (GDPO, arXiv:2601.05242, Sec. 2), mean over steps."""
    found: dict = {}
    for rows in places(log.groups).values():
        found.setdefault(log.steps[rows[0]], set()).add(tuple(np.sort(values[rows].round(DIGITS) + 0.0)))
    return float(np.mean([len(groups) for groups in found.values()]))


def orders(a: np.ndarray, b: np.ndarray, rows: list[int]) -> np.ndarray:
    """For each pair of rollouts that `a` or `b` orders: 1 same order, 0 tied in one, -1 opposite order."""
    pairs = np.array(list(combinations(rows, 2)))
    ordered = [np.sign((x[pairs[:, 0]] - x[pairs[:, 1]]).round(DIGITS)) for x in (a, b)]
    return (ordered[0] * ordered[1])[(ordered[0] != 0) | (ordered[1] != 0)]


def agreement(a: np.ndarray, b: np.ndarray, log: Log) -> tuple[float, float, float]:
    """Fractions of the ordered pairs within groups: same order, tied in one, opposite order."""
    found = np.concatenate([orders(a, b, rows) for rows in places(log.groups).values()])
    return tuple(float((found == kind).mean()) for kind in (1, 0, -1))


def flips(a: np.ndarray, b: np.ndarray) -> float:
    """Fraction of rollouts whose advantages have opposite signs."""
    return float((np.sign(a.round(DIGITS)) * np.sign(b.round(DIGITS)) < 0).mean())


def most_disputed(a: np.ndarray, b: np.ndarray, log: Log) -> list[int]:
    """The rows of the group with the most pairs in opposite order; ties go to the largest difference."""

    def dispute(rows: list[int]) -> tuple[int, float]:
        return int((orders(a, b, rows) < 0).sum()), float(np.abs(a[rows] - b[rows]).max())

    return max(places(log.groups).values(), key=dispute)


def show(console: Console, path: Path = LOG) -> None:
    """Print tables: each scheme on the same rollouts, each pair of schemes, and the group they dispute most."""
    specs = {label: rewardspec.load(SPEC, advantage=scheme) for label, scheme in SCHEMES.items()}
    log = read_log(path, specs["GRPO"])
    import pyarrow.parquet  # optional: `read_log` raises with the extra to install

    found = {label: advantages(spec, log) for label, spec in specs.items()}
    groups, steps = len(set(log.groups)), len(set(log.steps))
    console.rule("[bold]The same rollouts under three schemes[/]", align="left")
    console.print(
        f"{path.name}: {len(log.groups)} rollouts, {groups} groups, {steps} steps of examples/trl/train.py",
        highlight=False,
    )
    table = Table("", *found)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("advantage levels a step", *(f"{levels(a, log):.1f}" for a in found.values()))
    table.add_row("advantage groups a step", *(f"{distinct_groups(a, log):.1f}" for a in found.values()))
    table.add_row("rollouts without signal", *(f"{(a == 0).mean():.1%}" for a in found.values()))
    console.print(table)
    console.print(_pairs(found, log))
    console.print(_group(found, log, pyarrow.parquet.read_table(path).to_pylist(), console))


def _pairs(found: Mapping[str, np.ndarray], log: Log) -> Table:
    table = Table("", "same order", "tied in one", "opposite order", "rollouts of opposite sign")
    for column in table.columns[1:]:
        column.justify = "right"
    for (a, first), (b, second) in combinations(found.items(), 2):
        shares = (*agreement(first, second, log), flips(first, second))
        table.add_row(f"{a} / {b}", *(f"{share:.1%}" for share in shares))
    return table


def _group(found: Mapping[str, np.ndarray], log: Log, rows: list[dict], console: Console) -> Table:
    members = most_disputed(found["GRPO"], found["GDPO"], log)
    first = rows[members[0]]
    title = f"\nWhere GRPO and GDPO disagree most: step {first['step']}, `{escape(first['prompt'])}`"
    console.print(title, highlight=False)
    table = Table("completion", *log.columns, "GRPO", "GDPO", show_lines=True)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for i in members:
        rewards = [f"{values[i]:g}" for values in log.columns.values()]
        table.add_row(escape(rows[i]["completion"]), *rewards, *(f"{found[s][i]:+.3f}" for s in ("GRPO", "GDPO")))
    return table
