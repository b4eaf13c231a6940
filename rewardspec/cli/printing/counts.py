"""The tables of `rewardspec simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewardspec.cli.printing.lines import say, say_legend, say_wrapped
from rewardspec.cli.printing.table import console, table
from rewardspec.groups.blocks import of_items
from rewardspec.prove.simulate import Simulation

if TYPE_CHECKING:
    from rewardspec.prove.replay import Replay

SPREAD = {"spread": "the largest advantage of a group less its smallest, mean over groups"}


def show_counts(rows: list[Simulation], rates: str) -> None:
    """Print the numbers of reward groups and advantage groups, and their signal. rates: the value of `--p`."""
    out = console()
    heads = ["spec", "group size", "reward groups", "advantage groups", "kept apart", "count"]
    heads += ["groups without signal", "rollouts without", "spread"]
    cells = []
    for row in rows:
        signal = ("", "", "")
        if row.signal is not None:
            most = "" if row.signal.exact else "<= "
            signal = (
                f"{most}{row.signal.groups_without_signal:.1%}",
                f"{most}{row.signal.rollouts_without_signal:.1%}",
                f"{row.signal.spread:.3g}",
            )
        counts = (
            _count(row.reward_groups, row.exact),
            _count(row.advantage_groups, row.exact),
            f"{row.advantage_groups / row.reward_groups:.2g}",
        )
        cells.append((row.spec, str(row.group_size), *counts, "exact" if row.exact else "at least", *signal))
    table(out, None, heads, cells)
    say_legend(
        {
            "kept apart": "advantage groups for each reward group; 1 where advantages distinguish all that rewards do",
            "groups without signal": "all advantages of the group are equal, so it is dead",
            "rollouts without": "their advantage is 0",
            **SPREAD,
        }
    )
    parts = [(row.spec, str(row.group_size), row.signal.shares) for row in rows if row.signal and row.signal.shares]
    if any(len(shares) > 1 for *_, shares in parts):
        lines = [(spec, size, _shares(shares)) for spec, size, shares in parts]
        table(out, "Share of the advantage's variance", ("spec", "group size", "components"), lines)
    if any(row.interrupted for row in rows):
        say("interrupted: these are the results so far")
    elif not all(row.exact for row in rows):
        say("at least: some cases were not tried, or some values are not exact (an interval is sampled)")
    for row in {row.spec: row for row in rows if row.items is not None}.values():
        say_wrapped(
            f"{row.spec}: counted {of_items(row.items or 0)}, whose lengths are equally likely and items independent"
        )
    say_legend({"signal": f"at {rates or 'equal rates for all values'}, without the batch's normalisation"})


def show_sweep(curves: dict[str, list[tuple[float, Simulation]]], size: int) -> None:
    """Print the shares without signal by success rate; nothing if there are no curves."""
    if not curves:
        return
    rates = [f"{p:.0%}" for p, _ in next(iter(curves.values()))]
    for title, value in (("Groups", "groups_without_signal"), ("Rollouts", "rollouts_without_signal")):
        rows = [
            (label, *(f"{getattr(row.signal, value):.1%}" if row.signal else "" for _, row in curve))
            for label, curve in curves.items()
        ]
        table(console(), f"{title} without signal by success rate, {size} rollouts", ("spec", *rates), rows)


def show_replays(found: list[tuple[str, Replay]]) -> None:
    """Print a line for each spec that was run on a log."""
    heads = ("spec", "rollouts", "groups", "steps", "groups without signal", "rollouts without", "spread", "variance")
    rows = [
        (
            label,
            f"{r.rollouts:,}",
            f"{r.groups:,}",
            str(r.steps),
            f"{r.signal.groups_without_signal:.1%}",
            f"{r.signal.rollouts_without_signal:.1%}",
            f"{r.signal.spread:.3g}",
            _shares(r.signal.shares) if r.signal.shares else "",
        )
        for label, r in found
    ]
    table(console(), None, heads, rows)
    say_legend({**SPREAD, "variance": "each component's share of the variance of the advantage"})


def _count(number: int, exact: bool) -> str:
    return f"{number:,}" if exact else f">= {number:,}"


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
