"""Groups with one missing value, and their advantages."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from rewardspec.groups.question import Group
from rewardspec.lint.facts import OF_BATCH, Facts
from rewardspec.lint.table import at_moment
from rewardspec.text.diagnostics import Label
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span


def spoilt_groups(facts: Facts, code: str) -> Iterator[tuple[str, Group, Group]]:
    """(column, a group of three without missing values, the same group with one value of the column missing)."""
    policies = {name: column.missing for name, column in facts.declared.columns.items() if column.missing != "error"}
    nodes = list(facts.question.fine)
    if not policies or facts.depends_on_batch(code):
        return
    if facts.question.normalisation == "shift":
        facts.not_checked(code, OF_BATCH)
        return
    for at, node in enumerate(nodes):
        name = node.attributes[0]
        if name not in policies:
            continue
        left = None if policies[name] == "ignore" else Fraction(0)
        for members, columns, moment in facts.groups.some[3]:
            for i, row in enumerate(members):
                if all(None not in m for m in members) and row[at] != left:
                    without = (*row[:at], left, *row[at + 1 :])
                    spoilt = (*members[:i], without, *members[i + 1 :])
                    yield name, Group(members, columns, moment), Group(spoilt, columns, moment)


def measured_without_advantage(facts: Facts, group: Group, advantages: list[Any]) -> bool:
    """Whether some component of the first rollout without an advantage has a value, so that the call raises."""
    at = advantages.index(None)
    measured = (facts.groups.shaped(component, group) for component in facts.shaped)
    return any(values is not None and values[at] is not None for values in measured)


def with_and_without(facts: Facts, group: Group, spoilt: Group, before: list[Any], after: list[Any]) -> str:
    """Both groups on one line: the measured values, and the advantage of each rollout."""
    when = at_moment(facts, group[2])
    return f"{rows(facts, group, spoilt)} get {listed(after)}; with the value they get {listed(before)}{when}"


def rows(facts: Facts, group: Group, spoilt: Group | None = None) -> str:
    """The measured values of each rollout, with `-` for a value that is missing in `spoilt`."""
    rows = []
    for row, other in zip(group[0], (spoilt or group)[0], strict=True):
        shown = []
        for node, value, there in list(zip(facts.question.fine, row, other, strict=True))[:5]:
            symbols = node.domain.symbols
            text = "-" if value is None or value != there else symbols[int(value)] if symbols else format_number(value)
            shown.append(f"{node.attributes[0]} {text}")
        rows.append(f"({', '.join(shown)})")
    return ", ".join(rows)


def listed(advantages: list[Any]) -> str:
    """Advantages on one line."""
    return ", ".join("undefined" if a is None else f"{float(a):.3g}" for a in advantages)


def missing_place(facts: Facts, name: str) -> Span:
    """The text under `missing:` of a column; its declaration if it has none."""
    section = "components" if name in facts.declared.components else "signals"
    return facts.declared.place[section][name].of("missing")


def cause(facts: Facts, is_dropped: bool) -> Label:
    """Where the missing value takes effect: `keep` if it drops the group, else the advantage."""
    if is_dropped:
        return Label(facts.declared.place.of("keep"), "drops the group")
    return Label(facts.advantage_place(), "computed from it")
