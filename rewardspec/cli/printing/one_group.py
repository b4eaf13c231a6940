"""The tables of `rewardspec try`."""

from __future__ import annotations

from collections.abc import Sequence

from rewardspec.cli.printing.lines import cell, say
from rewardspec.cli.printing.table import console, table
from rewardspec.runs.one_group import OneGroup


def show_groups(found: Sequence[tuple[str, OneGroup]]) -> None:
    """Print what was given and the rewards, then shares and advantages under each scheme beside each other."""
    _, first = found[0]
    size = len(first.advantages)
    parts: list[tuple[str, Sequence[object]]] = [*first.columns.items()]
    parts += [(f"when {name}", [_yes_or_no(holds) for holds in gate]) for name, gate in first.gates.items()]
    changed = {name: values for name, values in first.rewards.items() if values != first.columns.get(name)}
    parts += [(f"reward {name} x {cell(first.weights[name])}", values) for name, values in changed.items()]
    _table("The group", size, parts)
    if len(found) > 1:
        _table("Advantages", size, [(label, _short(one.advantages)) for label, one in found])
    for label, one in found:
        parts = [(f"share {name}", _short(x)) for name, x in (one.shares or {}).items() if len(one.shares or {}) > 1]
        if parts or len(found) == 1:
            _table(f"Under {label}", size, [*parts, ("advantage", _short(one.advantages))])
    for label, one in found:
        if not one.kept:
            say(f"{label}: the group is not kept, so its advantages are 0")
        elif all(values == one.advantages[0] for values in one.advantages):
            say(f"{label}: no signal: all advantages are equal")


def _table(title: str, size: int, parts: Sequence[tuple[str, Sequence[object]]]) -> None:
    rows = [(str(i), *(cell(values[i]) for _, values in parts)) for i in range(size)]
    table(console(), title, ("rollout", *(head for head, _ in parts)), rows)


def _yes_or_no(holds: object) -> object:
    return [_yes_or_no(item) for item in holds] if isinstance(holds, list) else "yes" if holds else "no"


def _short(values: Sequence[object]) -> list[object]:
    """Numbers to four digits."""
    return [_short(v) if isinstance(v, list) else float(f"{v:.4g}") if isinstance(v, float) else v for v in values]
