"""Lists of a spec in a trainer: which columns hold them, and values that are lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewardspec.spec import Spec


def listed_columns(spec: Spec) -> dict[str, str]:
    """The columns that hold a list for each rollout, and which list: {"called": "turn"}."""
    levels = {name: spec.program.columns[name].level for name in spec.columns}
    return {name: level.name for name, level in levels.items() if level.listed}


def lists_of_turns(spec: Spec) -> tuple[str, ...]:
    """The lists that the spec reads no column of, as in `correct / position`: their items are a rollout's turns."""
    measured = {*listed_columns(spec).values()}
    return tuple(name for name in spec.lists if name not in measured)


def list_of_advantage(spec: Spec) -> str | None:
    """The list whose items have advantages; None if rollouts have."""
    level = spec.program.advantage.level
    return level.name if level.listed else None


def as_list(value: Any) -> Any:
    """A list out of a list, tuple, tensor or array with one axis or more; other values as they are."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple) else value


def with_missing(
    columns: Mapping[str, Any], lists: Mapping[str, str], turns: Callable[[str], Sequence[int] | None]
) -> dict[str, Any]:
    """Columns with as many missing items for each None in place of a list, which was not measured.

    lists: of each column that holds lists. turns: how many items of a list each rollout has, if its turns tell. As many
    as another column of the list has, or as there are turns; None is left where neither is known.
    """
    found = dict(columns)
    for name, of in lists.items():
        rows = [row for row, value in enumerate(columns.get(name, ())) if value is None]
        if not rows:
            continue
        others = [columns[other] for other in lists if lists[other] == of and other in columns]
        known, filled = turns(of), list(columns[name])
        for row in rows:
            counts = [len(column[row]) for column in others if isinstance(column[row], list)]
            counts += [] if known is None else [int(known[row])]
            if counts:
                filled[row] = [None] * counts[0]
        found[name] = filled
    return found
