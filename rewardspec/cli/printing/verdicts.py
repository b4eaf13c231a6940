"""The tables of `rewardspec verify`."""

from __future__ import annotations

from collections.abc import Sequence

from rewardspec.cli.printing.lines import cell, ranges
from rewardspec.cli.printing.table import Console, console, table
from rewardspec.groups.blocks import of_items
from rewardspec.prove.counterexample import Counterexample
from rewardspec.prove.solve import Solution
from rewardspec.prove.verify import Verdict
from rewardspec.spec import Spec

COLOURS = {"proved": "green", "refuted": "red"}


def show_verdicts(found: list[tuple[Spec, list[Verdict]]]) -> None:
    """Print a line for each guarantee, then the groups that break one."""
    out = console()
    rows = [
        (spec.name, v.name, v.status, ranges(v.sizes), f"{v.groups:,}", v.reason)
        for spec, verdicts in found
        for v in verdicts
    ]
    table(out, None, ("spec", "guarantee", "verdict", "group sizes", "groups tried", ""), rows, COLOURS)
    for spec, verdicts in found:
        for verdict in verdicts:
            if verdict.counterexample is not None:
                _show_counterexample(out, spec, verdict.name, verdict.counterexample)


def _show_counterexample(out: Console, spec: Spec, guarantee: str, group: Counterexample) -> None:
    title = f"{spec.name}: a group of {group.size} breaks `{guarantee}`"
    if group.group:
        title += " at " + ", ".join(f"{name} {cell(value)}" for name, value in group.group.items())
    own = {name: values for name, values in group.shaped.items() if values != group.columns.get(name)}
    shaped = (f"{name} (shaped)" if name in group.columns else name for name in own)
    values: list[Sequence[object]] = [*group.columns.values(), *own.values()]
    heads = ("", *group.columns, *shaped, "advantage", "")
    rows = [
        (
            str(i),
            *(cell(of[i]) for of in values),
            cell(advantage),
            "<-" if i in group.breaking else "",
        )
        for i, advantage in enumerate(group.advantages)
    ]
    table(out, title, heads, rows)


def safe_weights(solution: Solution) -> str:
    """The weights at which no guarantee is broken, and the guarantees that break beyond them, in one line."""
    if solution.is_none:
        return f"no weight is safe: {_broken(solution.at_zero)} at 0 and at every other weight that was tried"
    parts = []
    for first, last in solution.intervals:
        low = f"from {first.weight:.7g}" if first.safe else f"above {first.weight:.7g}"
        if first.broken:
            low += f" ({_broken(first.broken)} {'below' if first.weight else 'at'} it)"
        if not last.broken:
            parts.append(f"{low}; nothing breaks up to {last.weight:,.0f}")
        else:
            high = f"up to {last.weight:.7g}" if last.safe else f"below {last.weight:.7g}"
            parts.append(f"{low} {high} ({_broken(last.broken)} {'beyond' if last.safe else 'from'} it)")
    return (
        "safe "
        + "; and ".join(parts)
        + ("" if solution.items is None else f", {of_items(solution.items)}")
        + ("" if solution.proved else "; not proved: no group was found that breaks a guarantee")
    )


def _broken(names: list[str]) -> str:
    return f"{' and '.join(f'`{name}`' for name in names)} {'fails' if len(names) == 1 else 'fail'}"
