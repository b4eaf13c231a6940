"""The group that breaks a guarantee, with its columns, rewards and advantages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rewardspec.groups.points import Point
from rewardspec.groups.question import Group
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operators import COMPARISONS
from rewardspec.ops.real import Unknown, approximate
from rewardspec.prove.decide import Decider


@dataclass(frozen=True)
class Counterexample:
    """A group that breaks a guarantee.

    columns: by name, a value for every rollout. group: columns of group and batch level, and the moment of training.
    shaped: values of components. advantages: before the batch's normalisation. breaking: indices of the rollouts that
    the broken comparison compares. None is a missing value.
    """

    columns: dict[str, list[float | str | None]]
    group: dict[str, float | str | None]
    shaped: dict[str, list[float | None]]
    advantages: list[float | None]
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
    names = [n.attributes[0] for n in question.fine]

    def values(node: Node) -> list[float | None]:
        return [None if isinstance(v, Unknown | None) else approximate(v) for v in decider.values(node, group)]

    columns = {name: [_shown(r[i], nodes[name]) for r in group.rollouts] for i, name in enumerate(names)}
    whole = {name: _shown(value, nodes[name]) for name, value in group.columns.items()}
    whole |= {name: float(value) for name, value in group.moment.items()}
    shaped = {c.name: values(c.shaped) for c in question.program.components}
    least = group
    for name, found in shaped.items():  # drop values that only a closed gate reads
        for i, value in enumerate(found):
            if value is None and name in names:
                fewer = _without(decider, guarantee, least, i, names.index(name))
                if fewer is not None:
                    columns[name][i], least = None, fewer
    return Counterexample(columns, whole, shaped, values(question.root), _breaking(guarantee, values))


def _without(decider: Decider, guarantee: Node, group: Group, rollout: int, column: int) -> Group | None:
    """The group with one value missing; None if that changes the guarantee, the advantage or a component."""
    question, rollouts = decider.question, list(group.rollouts)
    row = rollouts[rollout]
    rollouts[rollout] = (*row[:column], None, *row[column + 1 :])
    without = group._replace(rollouts=tuple(rollouts))
    roots = [guarantee, question.root, *(c.shaped for c in question.program.components)]
    roots += [] if question.ends is None else [question.ends]
    try:
        return without if all(decider.values(n, group) == decider.values(n, without) for n in roots) else None
    except Inexact:
        return None


def _shown(value: Point, node: Node) -> float | str | None:
    if value is None:
        return None
    if node.domain.ids:
        return f"id {int(value) + 1}"
    return node.domain.symbols[int(value)] if node.domain.symbols else float(value)


def _breaking(guarantee: Node, values: Callable[[Node], list[float | None]]) -> list[int]:
    """Rollouts that a broken comparison compares: those with its least and greatest values, or those that fail it."""
    found: set[int] = set()
    for n in walk([guarantee]):
        if n.op not in COMPARISONS or n.level is Level.ROLLOUT:
            continue
        for side in n.args:
            side = side.args[0] if side.op in ("spread", "neg") else side
            if side.op in ("min", "max"):
                x, where = values(side.args[0]), values(side.args[1])
                (end,) = set(values(side))
                found.update(i for i, v in enumerate(x) if v is not None and v == end and where[i] == 1)
    if not found and guarantee.level is Level.ROLLOUT:
        found.update(i for i, v in enumerate(values(guarantee)) if v == 0)
    return sorted(found)
