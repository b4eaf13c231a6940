"""Groups with one missing value, and their advantages."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from rewardspec.groups.question import Group
from rewardspec.ir.exact import Values, items_of
from rewardspec.ir.graph import Node
from rewardspec.lint.facts import OF_BATCH, Facts
from rewardspec.lint.items import flat, shown_name
from rewardspec.lint.table import at_moment
from rewardspec.text.diagnostics import Label
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span

MOST_SHOWN = 5  # values of a rollout


def spoilt_groups(facts: Facts, code: str) -> Iterator[tuple[str, Group, Group]]:
    """(column, a group of three without missing values, the same group with one value of the column missing)."""
    policies = {name: column.missing for name, column in facts.declared.columns.items() if column.missing != "error"}
    nodes = [(at, n) for at, n in enumerate(facts.question.fine) if n.op == "column"]
    if not policies or facts.depends_on_batch(code):
        return
    if facts.question.normalisation == "shift":
        facts.not_checked(code, OF_BATCH)
        return
    for at, node in nodes:
        name = node.attributes[0]
        if name not in policies:
            continue
        left = None if policies[name] == "ignore" else Fraction(0)
        for members, columns, moment in facts.groups.some[3]:
            for i, row in enumerate(members):
                if any(None in flat(m) for m in members):
                    continue
                for value in _one_left(row[at], left):
                    without = (*row[:at], value, *row[at + 1 :])
                    spoilt = (*members[:i], without, *members[i + 1 :])
                    yield name, Group(members, columns, moment), Group(spoilt, columns, moment)


def _one_left(value: Values, left: Fraction | None) -> list[Values]:
    """A value, or that of one item, replaced by what is left of it when it is missing."""
    if isinstance(value, tuple):
        return [(*value[:k], left, *value[k + 1 :]) for k, v in enumerate(value) if v != left]
    return [left] if value != left else []


def measured_without_advantage(facts: Facts, group: Group, advantages: list[Any]) -> bool:
    """Whether some component of the first rollout without an advantage has a value, so that the call raises.

    A component of items has one if an item has, or if there are none.
    """
    at = next(i for i, value in enumerate(advantages) if None in items_of(value))
    measured = (facts.groups.shaped(component, group) for component in facts.shaped)
    return any(values is not None and (values[at] == () or {*items_of(values[at])} != {None}) for values in measured)


def with_and_without(facts: Facts, group: Group, spoilt: Group, before: list[Any], after: list[Any]) -> str:
    """Both groups on one line: the measured values, and the advantage of each rollout."""
    when = at_moment(facts, group[2])
    return f"{rows(facts, group, spoilt)} get {listed(after)}; with the value they get {listed(before)}{when}"


def rows(facts: Facts, group: Group, spoilt: Group | None = None) -> str:
    """The measured values of each rollout, with `-` for a value that is missing in `spoilt`."""
    rows = []
    for row, other in zip(group[0], (spoilt or group)[0], strict=True):
        shown = []
        for node, value, there in list(zip(facts.question.fine, row, other, strict=True)):
            if node.op == "position" and any(n.level is node.level for n in facts.question.fine if n is not node):
                continue  # the columns of the list show how many items there are
            shown.append(f"{shown_name(node)} {_shown(node, value, there)}")
        del shown[MOST_SHOWN:]
        rows.append(f"({', '.join(shown)})")
    return ", ".join(rows)


def _shown(node: Node, value: Values, there: Values) -> str:
    """A value; `-` if it, or that of an item, is missing `there`."""
    if isinstance(value, tuple) and isinstance(there, tuple):
        if node.op == "position":
            return str(len(value))
        return f"[{', '.join(_shown(node, v, w) for v, w in zip(value, there, strict=True))}]"
    if value is None or value != there:
        return "-"
    assert isinstance(value, Fraction), "a point of a column"
    return node.domain.symbols[int(value)] if node.domain.symbols else format_number(value)


def listed(advantages: list[Any]) -> str:
    """Advantages on one line."""
    return ", ".join(
        f"[{listed([*a])}]" if isinstance(a, tuple) else "undefined" if a is None else f"{float(a):.3g}"
        for a in advantages
    )


def missing_place(facts: Facts, name: str) -> Span:
    """The text under `missing:` of a column; its declaration if it has none."""
    section = "components" if name in facts.declared.components else "signals"
    return facts.declared.place[section][name].of("missing")


def cause(facts: Facts, is_dropped: bool) -> Label:
    """Where the missing value takes effect: `keep` if it drops the group, else the advantage."""
    if is_dropped:
        return Label(facts.declared.place.of("keep"), "drops the group")
    return Label(facts.advantage_place(), "computed from it")
