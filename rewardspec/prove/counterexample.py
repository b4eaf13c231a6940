"""The group that breaks a guarantee, with its columns, rewards and advantages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rewardspec.groups.points import Point
from rewardspec.groups.question import Group
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operators import COMPARISONS
from rewardspec.ops.real import Unknown, approximate
from rewardspec.prove.decide import Decider

Near = float | None
Shown = float | str | None


@dataclass(frozen=True)
class Counterexample:
    """A group that breaks a guarantee.

    columns: by name, a value for every rollout; of list level a list. A list without a column has `items of NAME`.
    group: columns of group and batch level, and the moment of training. shaped: values of components. advantages:
    before the batch's normalisation. breaking: indices of the rollouts that the broken comparison compares. None is a
    missing value.
    """

    columns: dict[str, list[Shown | list[Shown]]]
    group: dict[str, Shown]
    shaped: dict[str, list[Near | list[Near]]]
    advantages: list[Near | list[Near]]
    breaking: list[int]

    @property
    def size(self) -> int:
        return len(self.advantages)

    def __repr__(self) -> str:
        return f"<Counterexample: {self.size} rollouts, {', '.join(f'{n}={v}' for n, v in self.columns.items())}>"


def counterexample(decider: Decider, guarantee: Node, group: Group) -> Counterexample:
    """The counterexample of a group that breaks `guarantee`."""
    question = decider.question
    nodes = {n.attributes[0]: n for n in walk(question.nodes) if n.op == "column"}
    names = {n.attributes[0]: at for at, n in enumerate(question.fine) if n.op == "column"}
    counted = [n for n in question.fine if n.op == "position" and all(c.level is not n.level for c in nodes.values())]

    def values(node: Node) -> list[Near | list[Near]]:
        return [_listed(_near, value) for value in decider.nested(node, group)]

    columns = {
        name: [_listed(partial(_shown, nodes[name]), r[at]) for r in group.rollouts] for name, at in names.items()
    }
    for node in counted:
        at = list(question.fine).index(node)
        columns[f"items of {node.level}"] = [float(len(r[at])) for r in group.rollouts]
    whole = {name: _shown(nodes[name], value) for name, value in group.columns.items()}
    whole |= {name: float(value) for name, value in group.moment.items()}
    shaped = {c.name: values(c.shaped) for c in question.program.components}
    least = group
    for name, found in shaped.items():  # drop values that only a closed gate reads
        for i, value in enumerate(found if name in names else []):
            for j, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
                shown = columns[name][i]
                if item is not None or isinstance(shown, list) is not isinstance(value, list):
                    continue
                fewer = _without(decider, guarantee, least, i, names[name], j)
                if fewer is not None:
                    least = fewer
                    if isinstance(shown, list) and j is not None:
                        shown[j] = None
                    else:
                        columns[name][i] = None
    return Counterexample(columns, whole, shaped, values(question.root), _breaking(guarantee, values))


def _without(
    decider: Decider, guarantee: Node, group: Group, rollout: int, column: int, item: int | None
) -> Group | None:
    """The group with one value missing; None if that changes the guarantee, the advantage or a component."""
    question, rollouts = decider.question, list(group.rollouts)
    row = rollouts[rollout]
    left = None if item is None else (*row[column][:item], None, *row[column][item + 1 :])
    rollouts[rollout] = (*row[:column], left, *row[column + 1 :])
    without = group._replace(rollouts=tuple(rollouts))
    roots = [guarantee, question.root, *(c.shaped for c in question.program.components)]
    roots += [] if question.ends is None else [question.ends]
    try:
        return without if all(decider.values(n, group) == decider.values(n, without) for n in roots) else None
    except Inexact:
        return None


def _listed(show: Callable[[Any], Any], value: Any) -> Any:
    """A value as it is shown; those of items in a list."""
    return [show(v) for v in value] if isinstance(value, tuple) else show(value)


def _near(value: Any) -> Near:
    return None if isinstance(value, Unknown | None) else approximate(value)


def _shown(node: Node, value: Point) -> Shown:
    if value is None:
        return None
    if node.domain.ids:
        return f"id {int(value) + 1}"
    return node.domain.symbols[int(value)] if node.domain.symbols else float(value)


def _breaking(guarantee: Node, values: Callable[[Node], list[Any]]) -> list[int]:
    """Rollouts that a broken comparison compares: those with its least and greatest values, or those that fail it."""
    found: set[int] = set()
    for n in walk([guarantee]):
        if n.op not in COMPARISONS or n.level >= Level.ROLLOUT:
            continue
        for side in n.args:
            side = side.args[0] if side.op in ("spread", "neg") else side
            if side.op in ("min", "max"):
                (end,) = set(values(side))
                for i, (x, where) in enumerate(zip(values(side.args[0]), values(side.args[1]), strict=True)):
                    if end in _selected(x, where) and end is not None:
                        found.add(i)
    if not found and guarantee.level >= Level.ROLLOUT:
        found.update(i for i, v in enumerate(values(guarantee)) if 0 in (v if isinstance(v, list) else [v]))
    return sorted(found)


def _selected(x: Any, where: Any) -> list[Any]:
    """The values of a rollout, or of its items, that a reduction takes."""
    count = next((len(values) for values in (x, where) if isinstance(values, list)), 1)
    pairs = zip(*(values if isinstance(values, list) else [values] * count for values in (x, where)), strict=True)
    return [value for value, taken in pairs if taken == 1]
