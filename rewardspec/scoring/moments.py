"""Advantages of a batch that is computed in parts: what the parts say of the batch is merged, then applied to each.

parts = InParts(spec)
known = {}
for stage in range(parts.stages):
    merged = merge(parts.moments(stage, columns, groups, known) for columns, groups in whole_groups)
    known |= parts.values(stage, merged)
parts.advantages(columns, groups, known)  # of each part

Every reduction over the batch (`mean(x, over=batch)`) becomes a column of batch level, which holds its value. A part is
any set of whole groups, wherever it is computed: on one machine or on many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardspec.function import AdvantageFunction, Result
from rewardspec.ir.needs import needs_of
from rewardspec.ir.node import Node, walk
from rewardspec.language.declarations import Column
from rewardspec.lower.program import ComponentValue, Program
from rewardspec.ops.domain import CONDITION, Level, finest, interval
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.scoring.packed import Lengths, flat_lists
from rewardspec.spec import Spec

MERGED = ("min", "max", "mean", "sum", "var", "std", "count", "any", "all")  # reductions that parts can be merged for
UNSELECTED = 2.0**100  # stands for a value that takes no part: every float type holds it
ROUNDING = 4 * float(np.finfo(np.float64).eps)  # relative: less spread is none, as in the compiled function


class NotInParts(ValueError):
    """A spec reads a batch in a way that needs all of it in one place. The message says what."""


@dataclass(frozen=True)
class Moment:
    """Numbers, as far as reductions ask: their count, sum, squared deviations from the mean, least and greatest.

    Moment.of(np.array([1.0, 3.0]))  # count 2, total 4, squares 2, low 1, high 3
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Moment:
        if not len(values):
            return cls()
        squares = float(np.square(values - values.mean()).sum())
        return cls(len(values), math.fsum(values.tolist()), squares, float(values.min()), float(values.max()))

    def merged(self, other: Moment) -> Moment:
        """Of both sets of numbers (Chan, Golub and LeVeque 1979, Eq. 1.5)."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        apart = other.total / other.count - self.total / self.count
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Moment(count, self.total + other.total, squares, low, high)

    def value(self, name: str, ddof: float) -> float:
        """A reduction of the numbers; NaN for one that is missing."""
        empty = {"mean": math.nan, "min": math.nan, "max": math.nan, "all": 1.0}
        if not self.count:
            return empty.get(name, 0.0)
        if name in ("var", "std"):
            alive = self.high - self.low > ROUNDING * max(abs(self.low), abs(self.high))
            variance = self.squares / max(self.count - ddof, 1.0) if alive else 0.0
            return math.sqrt(variance) if name == "std" else variance
        found = {"mean": self.total / self.count, "sum": self.total, "count": float(self.count)}
        found |= {"min": self.low, "max": self.high, "any": float(self.high > 0), "all": float(self.low > 0)}
        return found[name]


Moments = Mapping[str, Moment]  # by the name of the column that holds the reduction's value


def merge(parts: Iterable[Moments]) -> dict[str, Moment]:
    """The moments of all parts together. Their order changes the last digits at most."""
    found: dict[str, Moment] = {}
    for part in parts:
        for name, moment in part.items():
            found[name] = found.get(name, Moment()).merged(moment)
    return found


@dataclass(frozen=True)
class _Reduced:
    """A reduction over the batch, and the column that its value becomes."""

    node: Node
    column: str
    numbers: AdvantageFunction  # UNSELECTED where they take no part
    of_groups: bool  # a number for each group, not for each rollout

    def moment(self, columns: Mapping[str, Any], groups: Any, moment: Mapping[str, Any]) -> Moment:
        values = self.numbers(columns, groups, **moment).advantages.double().numpy()
        if self.of_groups:
            values = values[np.unique(np.asarray(groups), return_index=True)[1]]
        return Moment.of(values[values != UNSELECTED])


class InParts:
    """A spec whose batches are computed in parts. Raises NotInParts for one that needs a batch in one place.

    stages: how often the parts are read before the advantages; the reductions of a stage read those before it.
    """

    def __init__(self, spec: Spec):
        self.spec = spec
        if spec.program.states or spec.program.copies is not None:
            raise NotInParts(
                f"{spec.name} has {'state' if spec.program.states else '`refill`'}, which reads a batch whole"
            )
        self._graph, self._new, self._columns = spec.program.graph, dict[Node, Node](), dict[str, Column]()
        self._stages: list[list[_Reduced]] = []
        roots = [*spec.program.results, *([] if spec.program.total is None else [spec.program.total])]
        order = walk(roots)
        depth: dict[Node, int] = {}
        for node in order:
            below = max((depth[arg] for arg in node.args), default=0)
            depth[node] = below + _over_batch(node)
        for node in order:
            args = tuple(self._new[arg] for arg in node.args)
            if _over_batch(node):
                self._new[node] = self._reduced(node, args, depth[node])
            elif args == node.args:
                self._new[node] = node
            else:
                self._new[node] = self._graph.node(node.op, args, node.attributes, node.level, node.domain)
                if node in self._graph.names:  # for messages
                    self._graph.names.setdefault(self._new[node], self._graph.names[node])
        self._advantages = AdvantageFunction(self._spec(self._replaced(spec.program)))

    @property
    def stages(self) -> int:
        return len(self._stages)

    def moments(
        self, stage: int, columns: Mapping[str, Any], groups: Any, known: Mapping[str, float], **moment: Any
    ) -> dict[str, Moment]:
        """What whole groups add to the moments of a stage.

        columns, groups: as `AdvantageFunction` takes them, N ids of groups. known: the values of the stages before.
        moment: `step` and `total_steps`. Raises RolloutError.
        """
        given, lengths = self._given(columns, known)
        moment["lengths"] = lengths
        return {one.column: one.moment(given, groups, moment) for one in self._stages[stage]}

    def values(self, stage: int, moments: Moments) -> dict[str, float]:
        """The values of the reductions of a stage, from the merged moments of all parts."""
        return {
            one.column: moments.get(one.column, Moment()).value(one.node.op, float(_parameter(one.node)))
            for one in self._stages[stage]
        }

    def advantages(self, columns: Mapping[str, Any], groups: Any, known: Mapping[str, float], **moment: Any) -> Result:
        """The advantages of whole groups, given the values of all stages. Raises RolloutError."""
        given, lengths = self._given(columns, known)
        return self._advantages(given, groups, lengths=lengths, **moment)

    def _given(self, columns: Mapping[str, Any], known: Mapping[str, float]) -> tuple[dict[str, Any], Lengths]:
        columns, lengths = flat_lists(self.spec, columns)
        return {**columns, **{name: np.array([value]) for name, value in known.items()}}, lengths

    def _reduced(self, node: Node, args: tuple[Node, ...], stage: int) -> Node:
        """The column that takes the place of a reduction."""
        graph, name = self._graph, f"of the batch {len(self._columns)}"
        if node.op == "given":  # the size of the batch
            x, where, level = graph.const(1, Level.ROLLOUT), graph.const(1), Level.ROLLOUT
            node = graph.node("count", (x, where), (Level.BATCH, None), Level.BATCH, node.domain)
        elif node.op not in MERGED or len(args) > 2:
            raise NotInParts(f"{self.spec.name} reads `{node.op}` of the batch, which needs all of it in one place")
        else:
            x, where = args
            level = finest((x.level, where.level))
            if level < Level.GROUP:
                raise NotInParts(f"{self.spec.name} reduces what the batch has one of")
        boolean = x.boolean
        number = graph.if_(x, graph.const(1), graph.const(0)) if boolean else x
        selected = graph.both(where, graph.present(x))
        value = graph.if_(selected, number, graph.const(Fraction(UNSELECTED)))
        domain = CONDITION if node.boolean else node.domain
        declared = interval(-math.inf, math.inf, missing=domain.missing)
        missing = "ignore" if domain.missing else "error"
        span = self.spec.source.span(0, 0)
        self._columns[name] = Column(name, span, declared, domain, span, Level.BATCH, missing, False)
        while len(self._stages) < stage:
            self._stages.append([])
        self._stages[stage - 1].append(_Reduced(node, name, self._function(value, level), level is Level.GROUP))
        column = graph.column(name, Level.BATCH, domain)
        return graph.compare(">", column, graph.const(0)) if node.boolean else column

    def _function(self, node: Node, level: Level) -> AdvantageFunction:
        """A function to the values of a node."""
        node = self._graph.spread(node, level if level.listed else Level.ROLLOUT)
        program = self.spec.program
        alone = replace(program, advantage=node, components=[], keep=None, copies=None, total=None)
        return AdvantageFunction(self._spec(alone))

    def _replaced(self, program: Program) -> Program:
        new = self._new
        components = [ComponentValue(c.name, new[c.shaped], new[c.weight]) for c in program.components]
        keep = None if program.keep is None else new[program.keep]
        total = None if program.total is None else new[program.total]
        return replace(program, advantage=new[program.advantage], components=components, keep=keep, total=total)

    def _spec(self, program: Program) -> Spec:
        return replace(self.spec, program=replace(program, columns={**program.columns, **self._columns}))


def _over_batch(node: Node) -> bool:
    """Whether a node is computed from all groups."""
    return "batch" in needs_of(node)


def _parameter(node: Node) -> Any:
    """The `ddof` of a reduction, 0 without."""
    return node.attributes[1] or 0 if node.op in REDUCTIONS else 0
