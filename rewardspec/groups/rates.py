"""A model of a policy: the probability of each value of a column, from rates such as `--p correct=0.3,length=0.8`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from rewardspec.groups.blocks import lists_of
from rewardspec.groups.parts import columns_of
from rewardspec.groups.points import ITEMS, Point, PolicyModel, column_points
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import Node, walk
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import REDUCTIONS, SCANS
from rewardspec.text.diagnostics import did_you_mean, shorten

HUGE = re.compile(r"[eE][-+]?[\d_]{4,}")  # an exponent that a fraction would write out


def read_rates(text: str) -> dict[str, Fraction]:
    """`correct=0.3,length=0.8` as numbers by name. Raises ValueError for anything else."""
    rates = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        try:
            rate = Fraction(value) if len(value) <= 40 and not HUGE.search(value) else None
        except (ValueError, ZeroDivisionError):
            rate = None
        if not equals or not name or rate is None or not 0 <= rate <= 1:
            raise ValueError(f"rates are written `correct=0.3,length=0.8`, each from 0 to 1, not {shorten(part)!r}")
        if name in rates:
            raise ValueError(f"`{shorten(name)}` has two rates")
        rates[name] = rate
    return rates


def policy(program: Program, rates: Mapping[str, Fraction | float], items: int = ITEMS) -> PolicyModel:
    """The probabilities of column values that give these success rates. items: of a list at most.

    A name is a column, or a component that depends on one column while its gate is open. It has two values, and
    success is the greater one. That of a list is the rate of each item. Raises ValueError for any other name.
    """
    roots = [program.advantage, *(c.shaped for c in program.components)]
    fine, *_ = column_points(program, roots, 1)
    nodes = {node.attributes[0]: node for node in fine}
    model: dict[str, dict[Point, float]] = {}
    for name, rate in rates.items():
        subject = _subject(program, name, nodes)
        columns = columns_of([subject])
        if len(columns) != 1 or not columns <= nodes.keys() or subject.level < Level.ROLLOUT:
            raise ValueError(f"`{name}` does not depend on exactly one rollout column, so it cannot have a rate")
        (column,) = columns
        several = {*SCANS, *REDUCTIONS, "position"}
        if any(n.op in several or n.level is not subject.level for n in _varying(subject)):
            raise ValueError(f"`{name}` depends on more than one item of a list: give a rate for `{column}`")
        if nodes[column].domain.ids:
            raise ValueError(f"`{name}` depends on the id `{column}`, so it cannot have a rate")
        if column in model:
            raise ValueError(f"`{name}` is a second rate of the column `{column}`: keep one of them")
        points = [value for value in fine[nodes[column]] if value is not None]
        evaluate = GroupEvaluator(subject, [nodes[column]], {}, floats=False)
        listed = subject.level.listed
        found = [evaluate([((point,) if listed else point,)], {})[0] for point in points]
        values = [value[0] if listed else value for value in found]
        if len(set(values)) != 2:
            raise ValueError(f"`{name}` has {len(set(values))} values; only something with two values can have a rate")
        high = max(values)
        successes = [value == high for value in values]
        model[column] = {
            point: float(rate) / sum(successes) if success else (1 - float(rate)) / (len(points) - sum(successes))
            for point, success in zip(points, successes, strict=True)
        }
    return PolicyModel(model, items)


def _varying(subject: Node) -> list[Node]:
    """What a node is computed from that differs between the items of a list; nothing if it reads no list."""
    nodes = walk([subject])
    return [n for n in nodes if n.level >= Level.ROLLOUT and n.constant is None] if lists_of(nodes) else []


def _subject(program: Program, name: str, columns: Mapping[str, Node]) -> Node:
    """The node of a column or component, without the component's gate."""
    if name in columns:
        return columns[name]
    component = next((c for c in program.components if c.name == name), None)
    if component is None:
        known = [*columns, *(c.name for c in program.components)]
        near = did_you_mean(name, known, f"there are {', '.join(f'`{k}`' for k in dict.fromkeys(known))}")
        raise ValueError(f"the spec has no column or component `{shorten(name)}`; {near}")
    node = component.shaped
    while node.op in ("if", "spread", "required"):
        node = node.args[1] if node.op == "if" else node.args[0]
    return node


def binary_names(program: Program) -> list[str]:
    """The names that can have a rate, one for each column: components before columns."""
    names: list[str] = []
    taken: set[str] = set()
    for name in [*(c.name for c in program.components), *program.columns]:
        try:
            (column,) = policy(program, {name: Fraction(1, 2)}).odds
        except ValueError:
            continue
        if column not in taken:
            taken.add(column)
            names.append(name)
    return names
