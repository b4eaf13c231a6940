"""Groups with one missing value, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.lint.facts import OF_BATCH, Facts
from rewardspec.lint.small_groups import Group
from rewardspec.lint.table import at_moment
from rewardspec.text.diagnostics import Label
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span


def spoilt_groups(facts: Facts, code: str) -> Iterator[tuple[str, Group, Group]]:
    """(column, a group of three, the group with one value of the column missing), for groups with none missing."""
    policies = {name: column.missing for name, column in facts.declared.columns.items() if column.missing != "error"}
    nodes = list(facts.question.fine)
    if not policies or facts.depends_on_batch(code):
        return
    if facts.question.normalisation == "shift":
        facts.leave_out(code, OF_BATCH)
        return
    for at, node in enumerate(nodes):
        name = node.attributes[0]
        if name not in policies:
            continue
        left = None if policies[name] == "ignore" else 0
        for members, columns, moment in facts.groups.some[3]:
            for i, row in enumerate(members):
                if all(None not in m for m in members) and row[at] != left:
                    without = (*row[:at], left, *row[at + 1 :])
                    spoilt = (*members[:i], without, *members[i + 1 :])
                    yield name, (members, columns, moment), (spoilt, columns, moment)


def measured_without_advantage(facts: Facts, group: Group, advantages: list[Any]) -> bool:
    """Whether something was measured of the first rollout that has no advantage, which ends the call."""
    at = advantages.index(None)
    measured = (facts.groups.shaped(component, group) for component in facts.shaped)
    return any(values is not None and values[at] is not None for values in measured)


def told(facts: Facts, group: Group, spoilt: Group, before: list[Any], after: list[Any]) -> str:
    """Both groups on a line: what was measured, and what each rollout gets."""
    when = at_moment(facts, group[2])
    return f"{rows(facts, group, spoilt)} get {listed(after)}; with the value, {listed(before)}{when}"


def rows(facts: Facts, group: Group, spoilt: Group | None = None) -> str:
    """What was measured of each rollout; `-` where that is missing in the other group."""
    rows = []
    for row, other in zip(group[0], (spoilt or group)[0], strict=True):
        shown = []
        for node, value, there in list(zip(facts.question.fine, row, other, strict=True))[:5]:
            symbols = node.domain.symbols
            text = "-" if value != there else symbols[int(value)] if symbols else format_number(value)
            shown.append(f"{node.attributes[0]} {text}")
        rows.append(f"({', '.join(shown)})")
    return ", ".join(rows)


def listed(advantages: list[Any]) -> str:
    return ", ".join("nothing" if a is None else f"{float(a):.3g}" for a in advantages)


def missing_place(facts: Facts, name: str) -> Span:
    """What a spec says of a missing value of a column; its declaration where it says nothing."""
    section = "components" if name in facts.declared.components else "signals"
    return facts.declared.place[section][name].of("missing")


def culprit(facts: Facts, is_dropped: bool) -> Label:
    if is_dropped:
        return Label(facts.declared.place.of("keep"), "leaves the group out")
    return Label(facts.advantage_place(), "computed with it")
