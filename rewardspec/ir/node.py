"""Nodes: typed, immutable values, made by a `Graph`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rewardspec.ops.domain import Domain, Level
from rewardspec.ops.elementwise import elementwise_exact
from rewardspec.ops.operator import Elementwise, Operator, Structural
from rewardspec.ops.operators import ACROSS_ROLLOUTS, ELEMENTWISE, OPERATORS, REDUCTIONS

ZERO = Fraction(0)


@dataclass(frozen=True, eq=False)
class Node:
    """One value. attributes: the parameters that are not nodes, as a column's name or the axis of a reduction.

    Reductions have the arguments `(x, where)` or `(x, where, by)` and the attributes `(over, parameter)`.
    """

    id: int
    op: str
    args: tuple[Node, ...]
    attributes: tuple[Any, ...]
    level: Level
    domain: Domain

    def __repr__(self) -> str:
        inner = ", ".join([*map(str, self.attributes), *(f"%{a.id}" for a in self.args)])
        return f"%{self.id} = {self.op}({inner})"

    @property
    def operator(self) -> Operator:
        """The declaration of `op`."""
        return OPERATORS[self.op]

    @property
    def constant(self) -> Fraction | None:
        return self.attributes[0] if self.op == "const" else None

    @property
    def boolean(self) -> bool:
        """Whether it is computed as a condition (torch.bool), not as a number."""
        return self.args[0].boolean if self.op == "spread" else OPERATORS[self.op].boolean


def can_fail(node: Node) -> bool:
    """Whether an operator may have no result for what its operands can be."""
    undefined = OPERATORS[node.op].undefined
    return undefined is not None and undefined.possible(*(a.domain for a in node.args))


def is_across_rollouts(node: Node) -> bool:
    """Whether a node's value at a rollout depends on other rollouts; a reduction over its own list does not."""
    return node.op in ACROSS_ROLLOUTS and not (node.op in REDUCTIONS and node.attributes[0] is Level.ROLLOUT)


def is_elementwise(node: Node) -> bool:
    """Whether a node's value at a rollout depends on its arguments at that rollout alone."""
    op = OPERATORS[node.op]
    return isinstance(op, Elementwise) or (isinstance(op, Structural) and op.exact is not None)


def evaluate(node: Node, values: Sequence[Any]) -> Any:
    """The exact value of an elementwise node from those of its arguments; None is missing."""
    op = ELEMENTWISE.get(node.op)
    if op is None:
        structural = OPERATORS[node.op]
        assert isinstance(structural, Structural) and structural.exact is not None, f"no exact rule for {node!r}"
        return structural.exact(values)
    if any(v is None for v in values):
        return ZERO if op.boolean else None
    return elementwise_exact(op, tuple(values))


def walk(roots: Iterable[Node], known: Iterable[Node] = ()) -> list[Node]:
    """Every node the roots depend on, arguments before their users; nothing below the `known` ones."""
    order: list[Node] = []
    seen: set[Node] = set(known)
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack.append((root, iter(root.args)))
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in seen:
                    seen.add(arg)
                    stack.append((arg, iter(arg.args)))
                    break
            else:
                stack.pop()
                order.append(node)
    return order


def canonical(roots: list[Node]) -> str:
    """The roots and all nodes below them as text: equal for equal graphs, whatever the order of creation."""
    number: dict[Node, int] = {}
    lines = []
    for node in walk(roots):
        number[node] = len(number)
        parts = [node.op, *map(str, node.attributes), str(node.level), str(node.domain)]
        lines.append(" ".join([*parts, *(f"%{number[a]}" for a in node.args)]))
    return "\n".join([*lines, *(f"%{number[root]}" for root in roots)])
