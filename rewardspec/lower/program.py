"""A spec as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from rewardspec.ir.graph import Graph, Node
from rewardspec.language.declarations import Column
from rewardspec.lower.values import Truth


@dataclass(frozen=True, eq=False)
class ComponentValue:
    """A component in the graph."""

    name: str
    shaped: Node
    weight: Node


@dataclass(eq=False)
class Program:
    """A spec as a graph. `columns` are all that it declares."""

    graph: Graph
    columns: Mapping[str, Column]
    components: list[ComponentValue]
    keep: Node | None
    copies: Node | None  # None where no group is drawn again
    advantage: Node
    outcome: Truth | None  # whether a rollout is right, where the spec declares it
    guarantees: dict[str, Node]
    labels: dict[str, Node]  # of reward tokens: conditions on one trajectory
    eps: Fraction
    ddof: Fraction
    total: Node | None = None  # what the spec calls `total`, for logs: see `logged_total`

    @property
    def results(self) -> list[Node]:
        """All that a call gives back: the advantage, shaped components, weights, kept groups, copies."""
        found = [self.advantage, *(node for c in self.components for node in (c.shaped, c.weight))]
        return [*found, *(node for node in (self.keep, self.copies) if node is not None)]
