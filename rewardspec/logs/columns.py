"""The columns, groups and steps that a spec reads from a file of rollouts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from rewardspec.language.declarations import Column
from rewardspec.logs.rows import BadLog
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.shown import shown

PREFIX = "scored/"  # of the columns that `score` adds: `scored/correct`, `scored/advantage`
GROUP_KEYS = (
    "rewardspec/group",
    "group",
    "uid",
    "prompt_id",
    "prompt",
    "input",
)  # trainers' names for the prompt of a rollout, the best first
STEP_KEYS = ("rewardspec/step", "step", "global_step")
ALIASES = {"tokens": ("completion_length", "response_length", "num_tokens")}  # trainers' names
LARGEST_STEP = 2**53


def flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the values under `rewards` moved to the top; a value already there wins."""
    inner = row.get("rewards")
    return {**inner, **row} if isinstance(inner, Mapping) else row


def group_key(
    path: Path, top: Sequence[str], found: Sequence[str], group_by: str | None, read: Collection[str] = ()
) -> str:
    """The column that identifies groups. Raises BadLog.

    top: the keys of the rows. found: these, and those under `rewards`. read: the names of the spec's columns in the
    file. They hold rewards, so they are used only if `group_by` names them, and so are columns under `rewards`.
    """
    own = [key for key in GROUP_KEYS if key in top]
    key = group_by or next((key for key in own if key not in read), None)
    if key is None or key not in found:
        wanted = f"`{shorten(group_by)}`" if group_by else " or ".join(f"`{k}`" for k in GROUP_KEYS)
        but = "".join(f" (the spec reads `{k}`: use --group-by {k} to group by it)" for k in own)
        raise BadLog(
            f"{shown(path)} has no column {wanted} that identifies groups{but if not group_by else ''}; "
            f"it has {listed(found)}"
        )
    return key


def step_key(top: Sequence[str]) -> str | None:
    return next((key for key in STEP_KEYS if key in top), None)


def held_as(
    path: Path, spec: Spec, names: Sequence[str], found: Sequence[str], prefix: str, lacking: str
) -> dict[str, Any]:
    """The name of each column in the file, scored columns first. Raises BadLog, which names all missing columns.

    lacking: the end of that message, after the name of the spec: "reads".
    """
    held: dict[str, str] = {}
    gaps = []
    for name in names:
        called = next((n for n in (prefix + name, name, *ALIASES.get(name, ())) if n in found), None)
        if called is None:
            near = did_you_mean(name, found)
            gaps.append(f"`{name}`" + (f" ({near})" if near else ""))
        else:
            held[name] = called
    if gaps:
        lacks = f"{shown(path)} has no column {', '.join(gaps)}, which {spec.name} {lacking}"
        raise BadLog(f"{lacks}; it has {listed(found)}")
    return held


def group_id(value: object) -> object:
    """A hashable id of a group. Raises ValueError for a missing value."""
    if value is None or value != value:
        raise ValueError("is missing, so its group is not known")
    if isinstance(value, bool):
        return ("true",) if value else ("false",)
    if isinstance(value, str | int | float):
        return value
    return ("json", json.dumps(value, sort_keys=True, default=repr))


def step_of(value: object) -> int:
    """A step as an integer: `1.0`, as tables write it, is 1. Raises ValueError with the reason."""
    if value is None or value != value:
        raise ValueError("is missing, so its batch is not known")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_STEP:
        large = isinstance(value, int) and value > LARGEST_STEP
        raise ValueError(
            f"is {shorten(repr(value))}: it must be {'at most 2^53' if large else 'a whole number, 0 or more'}"
        )
    return value


def value_of(column: Column, value: Any) -> Any:
    """A value as the compiled function takes it; None if missing. Raises ValueError with the reason."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    if column.domain.ids:
        if isinstance(value, list | dict) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError(f"is {shorten(repr(value))}: an id must be a text or a whole number")
        return value
    symbols = column.domain.symbols
    if symbols is not None:
        if not isinstance(value, str):
            raise ValueError(f"is {shorten(repr(value))}: it must be one of {', '.join(symbols)}")
        return value
    if isinstance(value, Decimal) and not value.is_nan():
        return float(value)
    if not isinstance(value, int | float):
        raise ValueError(f"is {shorten(repr(value))}: it must be a number")
    try:
        float(value)
    except OverflowError:
        raise ValueError("is too large for a float") from None
    return value


def values_of(column: Column, value: Any) -> Any:
    """As `value_of`; of a column of a list's level a list. Raises ValueError with the reason, and the item, from 1."""
    if not column.level.listed:
        return value_of(column, value)
    if not isinstance(value, list):
        raise ValueError(f"is {shorten(repr(value))}: it must be a list, of the items of `{column.level}`")
    found = []
    for place, item in enumerate(value, 1):
        try:
            found.append(value_of(column, item))
        except ValueError as error:
            raise ValueError(f"at {column.level} {place} {error}") from None
    return found


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{shorten(str(name))}`" for name in names[:12])
    return shown + (" ..." if len(names) > 12 else "")
