"""Any table or JSON lines with a row for each rollout; `--columns` says which column is what.

Read under their own names: `prompt`, `completion`, `advantage`, `step` or `global_step`, `group`, `uid` or
`prompt_id`. Mappings under `rewards` are read by the names in them. All else is a column as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rewardspec.logs.columns import GROUP_KEYS, STEP_KEYS, flat, group_id, step_of
from rewardspec.logs.format import ARROW, CSV, LINES, PARQUET, Format, Head, Rollout, Row, number_in, without

IDS = tuple(key for key in GROUP_KEYS if key not in ("prompt", "input"))
ADVANTAGES = ("advantage", "scored/advantage")


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    step = next((key for key in STEP_KEYS if key in row), None)
    group = next((key for key in IDS if key in row), None)
    advantage = next((key for key in ADVANTAGES if key in row), None)
    found = Rollout(without(flat(row), "rewards", *(key for key in (step, advantage) if key)))
    try:
        if step is not None:
            found.step = step_of(row[step])
    except ValueError as error:
        raise ValueError(f"`{step}` {error}") from None
    if group is not None:
        try:
            found.group = group_id(row[group])
        except ValueError as error:
            raise ValueError(f"`{group}` {error}") from None
    if advantage is not None:
        found.advantage = number_in(row, advantage)
    yield found


def _groups(head: Head) -> str | None:
    return "" if any(key in head.columns for key in IDS) else None


TABLE = Format(
    name="table",
    about="any Parquet, JSON lines, CSV or folder of `datasets`",
    marks="columns that --columns names",
    kinds=(PARQUET, LINES, CSV, ARROW),
    matches=lambda head: False,  # taken only where the user says so
    read=_read,
    groups=_groups,
    sharded=True,
)
