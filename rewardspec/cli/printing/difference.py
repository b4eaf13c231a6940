"""The tables of `rewardspec diff`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewardspec.cli.printing.lines import cell, say, say_legend
from rewardspec.cli.printing.table import console, table
from rewardspec.groups.blocks import of_items
from rewardspec.prove.diff import Difference
from rewardspec.prove.diff_on_log import LogDifference

LOST = {
    "signal lost": "the group's advantages differ before, and are all equal after",
    "signal found": "the other way round",
}


def show_difference(found: Difference | LogDifference) -> None:
    """Print the changes in the text, the groups whose advantages change, and an example."""
    if found.is_none:
        bound = f" {of_items(found.items)}" if isinstance(found, Difference) and found.items is not None else ""
        say(f"no difference found{bound}")
        return
    if found.changes:
        rows = [(c.what, c.before or "-", c.after or "-") for c in found.changes]
        table(console(), "Changes in the spec", ("", "before", "after"), rows)
    if isinstance(found, LogDifference):
        _show_log(found)
    else:
        _show_groups(found)


def _show_log(found: LogDifference) -> None:
    logged = found.logged
    rows = [
        ("in the log", f"{logged.rollouts:,}", f"{logged.groups:,}"),
        ("the advantage changes", f"{logged.changed:,}", f"{logged.groups_changed:,}"),
        ("its sign flips", f"{logged.signs:,}", ""),
        ("signal lost", "", f"{logged.died:,}"),
        ("signal found", "", f"{logged.revived:,}"),
    ]
    table(console(), f"Advantages: mean difference {logged.moved:.3g}", ("", "rollouts", "groups"), rows)
    say_legend(LOST)
    if logged.example:
        _show_example("The group that changes most", logged.example)


def _show_groups(found: Difference) -> None:
    heads = ("group size", "groups", "advantages change", "a sign flips", "signal lost", "signal found")
    rows = [tuple(map(str, (s.size, s.groups, s.changed, s.signs, s.died, s.revived))) for s in found.sizes]
    moments = f", at any of {found.moments} moments" if found.moments > 1 else ""
    table(console(), f"Advantages, without the batch's normalisation{moments}", heads, rows)
    say_legend(LOST)
    first = next((s for s in found.sizes if s.example), None)
    if first is not None:
        moment = ", ".join(f"{name} {cell(value)}" for name, value in first.moment.items())
        _show_example("The first group that changes" + (f", at {moment}" if moment else ""), first.example)
    if not found.exact:
        say(f"not everything was compared: {'; '.join(found.left_out)}")


def _show_example(title: str, example: Sequence[tuple[Mapping[str, object], object, object]]) -> None:
    names = list(example[0][0])
    rows = [(*(cell(columns[n]) for n in names), cell(a), cell(b)) for columns, a, b in example]
    table(console(), title, (*names, "before", "after"), rows)
