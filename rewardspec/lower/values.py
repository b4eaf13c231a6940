"""The values of expressions while a spec is lowered."""

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
    """A condition that can be missing: then neither `holds` nor `fails` is true."""

    holds: Node
    fails: Node


@dataclass(frozen=True)
class Axis:
    """What `over=` names: `group`, `batch`, `components`, `rollout`."""

    name: str


@dataclass(frozen=True)
class Bound:
    """An argument of a call: its value, its expression, and the scope of the caller."""

    value: Value
    expr: Expr
    scope: Scope


Value = Node | Bundle | Truth | Axis


@dataclass(frozen=True, eq=False)
class Scope:
    """The names that an expression can use: a function's parameters, then those of the spec or the prelude."""

    prelude: bool
    parameters: dict[str, Bound] = field(default_factory=dict)


class Skip(Exception):
    """An expression without a value; the reason is in the report."""


def fold(make: Callable[[Node, Node], Node], nodes: Sequence[Node]) -> Node:
    """The nodes combined from the left: `make(make(a, b), c)`."""
    result = nodes[0]
    for node in nodes[1:]:
        result = make(result, node)
    return result
