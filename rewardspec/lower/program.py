"""The program of a spec: its components, advantage and guarantees as nodes of one graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from rewardspec.ir.graph import Graph, Node
from rewardspec.language.declarations import Column, State
from rewardspec.lower.values import Truth


@dataclass(frozen=True, eq=False)
class ComponentValue:
    """The nodes of a component."""

    name: str
    shaped: Node
    weight: Node


@dataclass(frozen=True, eq=False)
class StateValue:
    """The nodes of a state: its value after the batch, and with `by` the column that has its keys."""

    declared: State
    after: Node
    key: Node | None


@dataclass(eq=False)
class Program:
    """A spec as nodes of one graph. `columns`: all that it declares, read or not."""

    graph: Graph
    columns: Mapping[str, Column]
    components: list[ComponentValue]
    keep: Node | None
    copies: Node | None  # None if no group is drawn again
    advantage: Node
    outcome: Truth | None  # whether a rollout is right; None if the spec declares no outcome
    guarantees: dict[str, Node]
    labels: dict[str, Node]  # of reward tokens: conditions on one trajectory
    eps: Fraction
    ddof: Fraction
    total: Node | None = None  # the spec's `total`, for logs: see `logged_total`
    states: Mapping[str, StateValue] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """The column that a node names: a measured one, or the value of a state before the batch."""
        return self.states[name].declared.column if name in self.states else self.columns[name]

    @property
    def roots(self) -> list[Node]:
        """All that a call computes and reads: the results, the states after the batch, and the keys of states."""
        found = [node for state in self.states.values() for node in (state.after, state.key)]
        return [*self.results, *(node for node in found if node is not None)]

    @property
    def results(self) -> list[Node]:
        """All outputs of a call: the advantage, shaped components, weights, kept groups, copies."""
        found = [self.advantage, *(node for c in self.components for node in (c.shaped, c.weight))]
        return [*found, *(node for node in (self.keep, self.copies) if node is not None)]
