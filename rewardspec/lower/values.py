"""What an expression can come to while it is lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rewardspec.ir.graph import Node
from rewardspec.syntax.tree import Expr


@dataclass(frozen=True)
class Bundle:
    """One value for each component."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Truth:
    """A condition that can be missing: then it neither holds nor fails."""

    holds: Node
    fails: Node


@dataclass(frozen=True)
class Axis:
    name: str


@dataclass(frozen=True)
class Bound:
    """An argument as a function body sees it: its value, and the component it names, if it does."""

    value: Value
    expr: Expr
    scope: Scope


Value = Node | Bundle | Truth | Axis


@dataclass(frozen=True, eq=False)
class Scope:
    """Where a name is looked up: a function's parameters, then the spec's own names or the prelude's."""

    prelude: bool
    parameters: dict[str, Bound] = field(default_factory=dict)


class Skip(Exception):
    """An expression without a value; the reason is in the report."""


def fold(make: Callable[[Node, Node], Node], nodes: Sequence[Node]) -> Node:
    result = nodes[0]
    for node in nodes[1:]:
        result = make(result, node)
    return result
