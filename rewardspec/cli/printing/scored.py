"""What `rewardspec score` prints at its end, and of a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rewardspec.cli.printing.lines import say, say_wrapped
from rewardspec.cli.printing.table import console, table
from rewardspec.rewards.judge.account import Account, Used
from rewardspec.scoring.dry_run import Asked, DryRun
from rewardspec.scoring.score import Summary
from rewardspec.text.shown import shown

MOST_NAMED = 20  # bad rows


def show_summary(summary: Summary, account: Account, rollouts: str, output: str) -> None:
    """Print what was scored, and what judges were asked."""
    show_problems(summary, rollouts)
    if not summary.scored:
        say(f"no row could be scored; nothing was written to {shown(output)}", err=True)
        show_judges(account)
        return
    say(f"wrote {summary.scored} rollouts in {summary.groups} groups to {shown(output)}")
    rows = [(name, f"{summary.mean[name]:.4g}", str(summary.missing[name])) for name in summary.mean]
    table(console(), None, ("reward", "mean", "missing"), rows)
    show_judges(account)


def show_problems(summary: Summary, rollouts: str) -> None:
    """Print, on stderr, bad rows and what was kept of earlier runs."""
    for number, reason in summary.bad[:MOST_NAMED]:
        say(f"{shown(rollouts)}:{number}: skipped: {reason}", err=True)
    if summary.bad:
        say(f"{len(summary.bad)} rows skipped, written to {shown(summary.aside)}", err=True)
    if summary.resumed:
        say(f"resumed: {summary.resumed} rows of an earlier run are kept", err=True)
    if summary.changed:
        say(f"{summary.changed} rows changed since an earlier run and were scored again", err=True)
    if summary.recalled or summary.asked:
        say(f"cache: {summary.recalled} values were kept, {summary.asked} were asked for", err=True)


def show_judges(account: Account, err: bool = False) -> None:
    """Print the calls, tokens and cost of judges, and which part of a budget is spent. err: on stderr, as lines."""
    used = {model: one for model, one in account.used.items() if one != Used()}
    if err:
        for model, one in used.items():
            known = account.cost_of(model)
            cost = "" if known is None else f", cost {_money(known)}"
            say(
                f"judge {shown(model)}: {one.calls:,} calls, {one.recalled:,} answers from its cache, "
                f"{one.prompt_tokens:,} tokens read and {one.completion_tokens:,} written{cost}",
                err=True,
            )
    elif used:
        rows = [(model, *_cells(one, account.cost_of(model))) for model, one in used.items()]
        heads = ("judge", "calls", "retries", "from its cache", "tokens in", "tokens out", "cost")
        table(console(), None, heads, rows)
    for model, one in used.items():
        if one.unsaid:
            of = f"{one.unsaid:,} of {one.calls:,} calls"
            say(f"{shown(model)}: {of} did not say their tokens, and are not in the sums", err=True)
    for part, count in account.stopped.items():
        what = "were not sent again" if part == "retries" else "were not sent"
        say(f"the budget of {part} is spent: {count:,} requests {what}; their values are missing", err=True)


def _cells(used: Used, cost: float | None) -> tuple[str, ...]:
    none = used.unsaid > 0 and not used.prompt_tokens
    tokens = ("-", "-") if none else (f"{used.prompt_tokens:,}", f"{used.completion_tokens:,}")
    return (
        f"{used.calls:,}",
        f"{used.retries:,}",
        f"{used.recalled:,}",
        *tokens,
        "-" if cost is None else _money(cost),
    )


def _money(cost: float) -> str:
    """To six digits after the point, without zeros at the end."""
    whole, _, parts = f"{cost:,.6f}".partition(".")
    return f"{whole}.{parts}".rstrip("0").rstrip(".")


def summary_json(summary: Summary, account: Account, output: str) -> dict[str, Any]:
    return {
        "output": output if summary.scored else None,
        "rollouts": summary.scored,
        "groups": summary.groups,
        "skipped": len(summary.bad),
        "first_skipped": [{"row": row, "reason": reason} for row, reason in summary.bad[:MOST_NAMED]],
        "resumed": summary.resumed,
        "changed": summary.changed,
        "cache": {"kept": summary.recalled, "asked": summary.asked},
        "rewards": {
            name: {"mean": mean if mean == mean else None, "missing": summary.missing[name]}
            for name, mean in summary.mean.items()
        },
        "judges": judges_json(account),
        "budget_spent": dict(account.stopped),
    }


def judges_json(account: Account) -> dict[str, Any]:
    return {model: {**asdict(used), "cost": account.cost_of(model)} for model, used in account.used.items()}


def show_dry_run(found: DryRun, account: Account, rollouts: str) -> None:
    """Print what judges would be asked about a file, and what the numbers rest on."""
    skipped = f", of which {found.bad:,} would be skipped" if found.bad else ""
    say(f"{shown(rollouts)}: {found.rows:,} rows{skipped}; nothing was asked, nothing was written")
    if not found.judges:
        say("the spec has no judge: `score` makes no calls")
    else:
        costs = {name: cost_of(one, account) for name, one in found.judges.items()}
        heads = ["reward", "rows", "in --cache", "requests", "in its cache", "calls", "tokens in", "tokens out", "cost"]
        table(console(), None, heads, [_dry_cells(name, one, costs[name]) for name, one in found.judges.items()])
        say_wrapped("in --cache: rows whose value it has. in its cache: requests that the judge's own cache answers")
        say_wrapped("tokens in: a quarter of the bytes of the requests. tokens out: at most, by `max_tokens`")
        say_wrapped("calls: without what is sent again after a failure")
    for name, one in found.judges.items():
        if one.unsure:
            read = " and ".join(f"`{column}`" for column in one.reads)
            say_wrapped(
                f"{name}: at most, because `only_when` reads {read}, not known before the run for {one.unsure:,} rows"
            )
        if account.price(one.model) is None:
            say_wrapped(f"{name}: the cost of {one.model} is not known: give --price")
    for name in found.others:
        say_wrapped(f"{name}: a function of your own: not called, and what it asks is not known")


def cost_of(asked: Asked, account: Account) -> float | None:
    """The most that calls cost, about; None without a price, or without a most."""
    price = account.price(asked.model)
    if price is None or asked.completion_tokens is None:
        return None
    return price.of(asked.prompt_tokens, asked.completion_tokens)


def _dry_cells(name: str, asked: Asked, cost: float | None) -> tuple[str, ...]:
    most = "<= " if asked.unsure else ""
    out = "no end" if asked.completion_tokens is None else f"<= {asked.completion_tokens:,}"
    return (
        name,
        f"{most}{asked.rows:,}",
        f"{asked.kept:,}",
        f"{most}{asked.requests:,}",
        f"{asked.recalled:,}",
        f"{most}{asked.calls:,}",
        f"{most}{asked.prompt_tokens:,}",
        out,
        "-" if cost is None else f"<= {_money(cost)}",
    )


def dry_run_json(found: DryRun, account: Account) -> dict[str, Any]:
    judges: Mapping[str, Any] = {
        name: {**asdict(one), "calls": one.calls, "cost_at_most": cost_of(one, account)}
        for name, one in found.judges.items()
    }
    return {"rows": found.rows, "skipped": found.bad, "judges": judges, "own_functions": found.others}
