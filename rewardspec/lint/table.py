"""A group on a line of a message."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rewardspec.groups.parts import columns_of
from rewardspec.groups.question import Group
from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import shown_name
from rewardspec.text.numbers import format_number

MOST_COLUMNS = 5
MOST_ITEMS = 4  # of a list that are equal and shown one by one


def table(facts: Facts, group: Group, advantages: Sequence[Any]) -> str:
    """The rewards and the advantage of each rollout of a group: `(correct 0, length 1) gets 0.707; ...`."""
    question = facts.question
    columns = {name: values for name in facts.shaped if (values := facts.groups.shaped(name, group)) is not None}
    outcome = facts.outcome and facts.outcome.component
    varying = [name for name, values in columns.items() if name == outcome or len(set(values)) > 1]
    varying = sorted(varying or columns, key=lambda name: len(set(columns[name])) < 2 and name != outcome)
    shown = [[f"{n} {_shown(columns[n][i])}" for n in varying[:MOST_COLUMNS]] for i in range(len(advantages))]
    read = columns_of([*facts.groups.shaped_nodes.values()])
    reads = facts.outcome.reads if facts.outcome is not None else ()
    for at, node in enumerate(question.fine):  # what says who is right; signals that components do not show
        name, symbols = shown_name(node), node.domain.symbols
        if node.op == "position" and any(n.level is node.level for n in question.fine if n is not node):
            continue  # the columns of the list show how many items there are
        if name in reads and name not in columns:
            for row, rollout in zip(shown, group.rollouts, strict=True):
                row.insert(0, f"{name} {_shown(rollout[at], symbols)}")
            continue
        gets = {(tuple(row), a) for row, a in zip(shown, advantages, strict=True)}
        differ = len({rollout[at] for rollout in group.rollouts}) > 1
        unseen = len({row for row, _ in gets}) < len(gets) or (node.level.listed and name not in read)
        if unseen and differ and name not in columns:
            for row, rollout in zip(shown, group.rollouts, strict=True):
                value = len(rollout[at]) if node.op == "position" else rollout[at]
                row.append(f"{name} {_shown(value, symbols)}")
    is_cut = sum(len(set(values)) > 1 or n == outcome for n, values in columns.items()) > MOST_COLUMNS
    rows: dict[str, int] = {}
    for cells, a in zip(shown, advantages, strict=True):
        line = f"({', '.join([*cells, *(['...'] if is_cut else [])])}) gets {_number(a)}"
        rows[line] = rows.get(line, 0) + 1
    text = "; ".join(line if count == 1 else f"{count} x {line}" for line, count in rows.items())
    if question.normalisation == "shift":
        text += ", before the batch's normalisation"
    return text + at_moment(facts, group.moment)


def at_moment(facts: Facts, moment: dict[str, Fraction]) -> str:
    """The moment of a claim: ` at step 30`; empty for the first step."""
    read = {n.attributes[0] for n in walk(facts.question.nodes) if n.op == "given"}
    when = [f"{name} {format_number(value)}" for name, value in moment.items() if name in read]
    return f" at {', '.join(when)}" if when and any(moment.get(name) for name in ("step", "progress")) else ""


def _number(value: Any) -> str:
    return _listed([*map(_number, value)]) if isinstance(value, tuple) else f"{float(value):.3g}"


def _listed(items: list[str]) -> str:
    many = len(items) > MOST_ITEMS and len({*items}) == 1
    return f"[{len(items)} x {items[0]}]" if many else f"[{', '.join(items)}]"


def _shown(value: Any, symbols: Sequence[str] | None = None) -> str:
    if isinstance(value, tuple):
        return _listed([_shown(v, symbols) for v in value])
    return "-" if value is None else symbols[int(value)] if symbols else format(float(value), ".4g")
