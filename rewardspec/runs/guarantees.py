"""Guarantees of a spec that groups of a run broke: found in floats, told only where exact arithmetic agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardspec.function import AdvantageFunction
from rewardspec.groups.question import Question
from rewardspec.ir.exact import GroupEvaluator, is_unknown, items_of
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.prove.verify import undecidable
from rewardspec.runs.batches import Batch, lacking, measure, unmeasured_lists
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import shorten

MOST_DECIDED = 200  # groups of a guarantee that are decided exactly
MOST_SHOWN = 2  # of them
LARGEST = 1024  # rollouts of a group that is decided exactly
SNAP = Fraction(1, 10**5)  # a measured value this near to a declared one is that, as for the compiled function

Row = dict[str, Any]
Rows = NDArray[np.int64]
Columns = Callable[[Sequence[str]], dict[str, Any]]  # names to [N] values


@dataclass
class _Promise:
    """A guarantee: as a function of a batch, and as a node that is evaluated exactly."""

    function: AdvantageFunction
    node: Node
    seen: int = 0  # groups
    suspects: int = 0
    decided: int = 0
    broken: int = 0
    open: int = 0  # too close to call
    large: int = 0  # not decided, as they have too many rollouts
    rows: list[Row] = field(default_factory=list)  # of those that are shown


class Broken:
    """The guarantees of a spec over the steps of a run. unseen: those that cannot be looked at, with the reason."""

    def __init__(self, spec: Spec, total_steps: int | None = None):
        self.spec, self.total_steps = spec, total_steps
        self.promises: dict[str, _Promise] = {}
        self.unseen: dict[str, str] = {}
        if not spec.program.guarantees:
            return
        question = Question.of(spec, eps=spec.declarations.eps)
        graph = spec.program.graph
        for name, node in question.program.guarantees.items():
            own = spec.program.guarantees[name]
            every = graph.const(1)
            own = graph.reduce("all", own, every, None, Level.ROLLOUT) if own.level.listed else own
            function = measure(spec, graph.if_(own, every, graph.const(0)))
            reason = undecidable(question, node) or ("it reads the state" if function is None else "")
            if any(n.level.listed and n.level.name in unmeasured_lists(spec) for n in walk([own])):
                reason = reason or "it reads a list of which the log has no column"
            if any(n.op == "column" and n.domain.ids for n in walk([node])):
                reason = reason or "it compares ids"
            if reason or function is None:
                self.unseen[name] = reason
            else:
                self.promises[name] = _Promise(function, node)

    def add(self, batch: Batch, number: int, columns: Columns, show: Callable[[Rows], list[Row]]) -> None:
        """Look at a batch. columns: function to the values of columns. show: function to rollouts as they are told."""
        total, allowance = max(self.total_steps or 0, number) or None, Allowance()
        for name, promise in self.promises.items():
            if name in self.unseen:
                continue
            if lacks := lacking(batch.step, promise.function.spec.columns):
                since = f" from step {number} on" if promise.seen else ""
                names = ", ".join(f"`{shorten(one)}`" for one in lacks)
                self.unseen[name] = f"the log has no column {names}{since}"
                continue
            given = columns(promise.function.spec.columns)
            found = promise.function(given, batch.of, step=number, total_steps=total).advantages.numpy()
            promise.seen += len(batch.sizes)
            suspects = np.unique(batch.of[found == 0])
            promise.suspects += len(suspects)
            for group in suspects:
                if batch.sizes[group] > LARGEST:
                    promise.large += 1
                    continue
                if promise.decided >= MOST_DECIDED or allowance.is_spent:
                    continue
                promise.decided += 1
                rows = np.flatnonzero(batch.of == group)
                breaks = self._breaks(promise.node, columns, rows, number, total)
                promise.open += breaks is None
                if not breaks:
                    continue
                promise.broken += 1
                if promise.broken <= MOST_SHOWN:
                    promise.rows += show(rows)

    def _breaks(self, node: Node, columns: Columns, rows: Rows, number: int, total: int | None) -> bool | None:
        """Whether a group breaks a guarantee, in exact arithmetic; None where that is too close to call."""
        read = [n for n in walk([node]) if n.op == "column"]
        given = columns(tuple(n.attributes[0] for n in read))
        fine = [n for n in read if n.level >= Level.ROLLOUT]
        values = {n: [_exact(n, given[n.attributes[0]][i]) for i in rows] for n in read}
        moment = {"step": Fraction(number)}
        if total:
            moment |= {"total_steps": Fraction(total), "progress": Fraction(number, total)}
        coarse = {n.attributes[0]: values[n][0] for n in read if n.level < Level.ROLLOUT}
        try:
            rollouts = [tuple(values[n][k] for n in fine) for k in range(len(rows))]
            found = GroupEvaluator(node, fine, moment)(rollouts, coarse)
        except Inexact:
            return None
        if any(v == 0 for value in found for v in items_of(value) if isinstance(v, Fraction | int)):
            return True
        return None if any(map(is_unknown, found)) else False

    def notes(self) -> Iterator[str]:
        """What was not looked at, or not decided, in words."""
        for name, reason in self.unseen.items():
            yield f"the guarantee {name!r} was not looked at: {reason}"
        for name, promise in self.promises.items():
            left = promise.suspects - promise.decided + promise.open
            if left:
                groups = f"{left} groups" if left > 1 else "a group"
                large = f" ({promise.large} of more than {LARGEST:,} rollouts)" if promise.large else ""
                more = f"{groups} more{large}, which exact arithmetic did not decide"
                yield f"the guarantee {name!r} may be broken in {more}"

    def found(self) -> Iterator[tuple[str, list[Row]]]:
        """What was broken, in words, with the rollouts that show it."""
        for name, promise in self.promises.items():
            if promise.broken:
                least = "at least " if promise.suspects > promise.decided else ""
                groups = f"{least}{promise.broken} of {promise.seen} groups"
                yield f"{groups} break the guarantee {name!r}", promise.rows


def _exact(node: Node, value: Any) -> Any:
    """A measured value as exact arithmetic has it."""
    if isinstance(value, list):
        return tuple(_exact(node, v) for v in value)
    if value is None or value != value:
        return None
    if node.domain.symbols is not None:
        return Fraction(node.domain.symbols.index(value))
    number = Fraction(repr(float(value)))
    nearest = min(node.domain.values or (number,), key=lambda v: abs(v - number))
    return nearest if abs(nearest - number) <= SNAP * max(Fraction(1), abs(nearest)) else number
