"""The tables of `rewardspec replay`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rewardspec.cli.printing.lines import say, say_legend, say_wrapped
from rewardspec.cli.printing.table import console, table
from rewardspec.runs.audit import Remark, Row
from rewardspec.runs.health import StepHealth, mean_over, parts_of
from rewardspec.runs.replay import RunReplay, UnderSpec
from rewardspec.runs.suggest import Suggestion

MOST_STEPS = 12  # rows of steps; more are put together

AUDIT_SAYS = (
    "An audit of the rollouts that were logged. It cannot know whether what was measured as right is right, nor what "
    "the policy would have become under another spec."
)

OF_STEPS = {
    "dead": "groups whose advantages are all equal; every rollout is right, none is, or neither (tied)",
    "spread": "the largest advantage of a group less its smallest, mean over groups",
    "effective": "effective sample size as a share of the rollouts; 1 where all advantages have one size",
    "live |A|": "mean size of the advantage in groups that are not dead",
}
OF_COMPONENTS = {
    "at low, at high": "rollouts at an end of the component's range",
    "decides in": "groups in which it differs between rollouts",
    "share": "its part of the sum of the sizes of all shares of the advantage",
    "with outcome, with length": "its correlation with being right, and with the length of the completion",
}


def show_replay(found: RunReplay) -> None:
    """Print what was read and what is lost, then each spec, then the second against the first."""
    steps = found.specs[0].steps
    rollouts, groups = sum(s.rollouts for s in steps), sum(s.groups for s in steps)
    say(f"{rollouts:,} rollouts in {groups:,} groups and {len(steps):,} steps, from a log of {found.run.format}")
    for lost in found.run.lost:
        say_wrapped(f"not in the log: {lost}")
    for spec in found.specs:
        say("")
        _show_spec(spec)
    if found.difference is not None:
        d = found.difference
        a, b = (spec.name for spec in found.specs[:2])
        order = "-" if d.same_order is None else f"{d.same_order:.1%}"
        rows = [
            ("rollouts whose advantage changes", f"{d.changed:.1%}"),
            ("rollouts whose advantage changes sign", f"{d.sign_flips:.1%}"),
            ("pairs of a group that both order alike", order),
            ("groups that come alive", f"{d.revived:,}"),
            ("groups that die", f"{d.killed:,}"),
        ]
        table(console(), f"{b} in place of {a}, on the same rollouts", ("", ""), rows)
        say_wrapped("The rollouts were drawn under the run's own policy: this is no forecast of another run.")


def _show_spec(spec: UnderSpec) -> None:
    say(f"{spec.name} ({spec.fingerprint})")
    say(f"right: {spec.outcome}" if spec.outcome else "without an outcome: dead groups are not told apart")
    if spec.logged.largest is not None:
        say(f"its advantages are within {spec.logged.largest:.2g} of those of the log")
    heads = ("step", "rollouts", "groups", "dead", "all right", "all wrong", "tied", "spread", "effective", "live |A|")
    normalised = any(s.batch_factor is not None for s in spec.steps)
    rows = [_of_steps(part, normalised) for part in parts_of(spec.steps, MOST_STEPS)]
    table(console(), "Groups without signal, by step", (*heads, *(["batch x"] if normalised else [])), rows)
    say_legend(
        {**OF_STEPS, **({"batch x": "what the batch's normalisation multiplies advantages by"} if normalised else {})}
    )
    of_components = ("", "mean", "std", "at low", "at high", "decides in", "share", "with outcome", "with length")
    rows = [
        (
            c.name,
            _number(c.mean),
            _number(c.std),
            _rate(c.at_low),
            _rate(c.at_high),
            _rate(c.decides_in),
            _rate(c.share),
            _number(c.with_outcome),
            _number(c.with_length),
        )
        for c in spec.components
    ]
    table(console(), "Components", of_components, rows)
    say_legend(OF_COMPONENTS)
    if spec.by:
        of_value = ("", "groups", "dead", "all right", "all wrong", "right")
        of_values = [
            (_value(v.value), f"{v.groups:,}", _rate(v.groups_without_signal), _rate(v.all_right), _rate(v.all_wrong))
            for v in spec.by
        ]
        rights = [_rate(v.right) for v in spec.by]
        table(console(), "By value", of_value, [(*row, right) for row, right in zip(of_values, rights, strict=True)])
    for note in spec.notes:
        say(note)
    show_audit(spec.audit)


def step_line(step: StepHealth) -> str:
    """A step in one line."""
    split = [
        f"{_rate(value)} {what}"
        for what, value in (("all right", step.all_right), ("all wrong", step.all_wrong), ("tied", step.tied))
        if value is not None
    ]
    parts = [f"{_rate(step.groups_without_signal)} dead" + (f" ({', '.join(split)})" if split else "")]
    parts += [f"effective {_rate(step.effective)}", f"total {_number(step.total)}"]
    parts += [] if step.right is None else [f"right {_rate(step.right)}"]
    parts += [] if step.batch_factor is None else [f"batch x {_number(step.batch_factor)}"]
    return f"step {step.step}: {step.rollouts:,} rollouts, {step.groups:,} groups, {', '.join(parts)}"


def show_audit(audit: Sequence[Remark]) -> None:
    """Print the remarks of an audit, with the rollouts that show them."""
    say_wrapped(AUDIT_SAYS)
    if not audit:
        say("nothing to remark")
    for remark in audit:
        say(f"{remark.severity}[{remark.code}]: {remark.message}")
        for row in _telling(remark):
            where = f"{row['file']}:{row['row']}" if "file" in row else f"step {row['step']}, group {row['group']}"
            values = ", ".join(f"{name} {_number(value)}" for name, value in row["rewards"].items())
            right = {True: ", right", False: ", wrong", None: ""}[row.get("right")]
            say(f"  {where}: advantage {row['advantage']:.3g}{right}, {values}")


def show_suggestions(spec: UnderSpec, found: Sequence[Suggestion]) -> None:
    """Print the changes that leave fewer dead groups on this log."""
    if not found:
        say(f"no change that was tried leaves fewer groups of {spec.name} without signal and keeps all else")
        return
    rows = [(one.change, _rate(one.groups_without_signal), ", ".join(one.remarks) or "-") for one in found]
    title = f"Changes of {spec.name} on this log, of whose groups {_rate(found[0].was)} are dead"
    table(console(), title, ("change", "dead", "remarks"), rows)
    say("None breaks a guarantee in groups of 2 and 3, or adds a remark. They were tried on these rollouts alone.")


def _telling(remark: Remark) -> Sequence[Row]:
    """Four rollouts of the group that shows a remark best: those with most and with least advantage."""
    first = [row for row in remark.rollouts if row["group"] == remark.rollouts[0]["group"]]
    rows = sorted((row for row in first if row["step"] == first[0]["step"]), key=lambda row: -float(row["advantage"]))
    return rows if len(rows) <= 4 else [*rows[:2], *rows[-2:]]


def _of_steps(part: Sequence[StepHealth], normalised: bool) -> tuple[str, ...]:
    """A row of some steps, whose rates are means over groups."""
    label = str(part[0].step) if len(part) == 1 else f"{part[0].step}..{part[-1].step}"
    rates = [_rate(mean_over(part, name)) for name in ("groups_without_signal", "all_right", "all_wrong", "tied")]
    numbers = [
        _number(mean_over(part, "advantage_spread")),
        _rate(mean_over(part, "effective")),
        _number(mean_over(part, "live_size")),
    ]
    numbers += [_number(mean_over(part, "batch_factor"))] if normalised else []
    return label, f"{sum(s.rollouts for s in part):,}", f"{sum(s.groups for s in part):,}", *rates, *numbers


def _value(value: object) -> str:
    """A value of `--by`; a text that could be read as a number, or as true or false, in quotes."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        return value if isinstance(json.loads(value), str) else f'"{value}"'
    except (ValueError, RecursionError):
        return value


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
