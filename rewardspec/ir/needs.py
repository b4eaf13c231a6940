"""What a graph asks of a trainer: whole groups, the whole batch, the step, the lengths of responses.

It is read off the nodes that results depend on, so a name that simplification removed asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level, finest
from rewardspec.ops.operators import REDUCTIONS

Need: TypeAlias = Literal["group", "batch", "step", "total_steps", "progress", "tokens", "lists", "state"]
NEEDS: tuple[Need, ...] = get_args(Need)  # in the order in which they are shown

_NOTHING: frozenset[Need] = frozenset()
_GROUP: frozenset[Need] = frozenset({"group"})
_BATCH: frozenset[Need] = frozenset({"batch"})
_OF_GIVEN: dict[str, frozenset[Need]] = {
    "group_size": _GROUP,
    "batch_size": _BATCH,
    "step": frozenset({"step"}),
    "total_steps": frozenset({"total_steps"}),
    "progress": frozenset({"step", "total_steps", "progress"}),
}
_DRAWN: frozenset[Need] = frozenset({"group", "batch", "step"})  # among the batch's groups, by seed and step
_TOKENS: frozenset[Need] = frozenset({"tokens"})
_LISTS: frozenset[Need] = frozenset({"lists"})


def needs_of(node: Node) -> frozenset[Need]:
    """What one node asks for, apart from its arguments."""
    return _own_needs(node) | _LISTS if node.level.listed else _own_needs(node)


def _own_needs(node: Node) -> frozenset[Need]:
    if node.op == "given":
        return _OF_GIVEN.get(node.attributes[0], _NOTHING)
    if node.op == "column":
        return _TOKENS if node.attributes[0] == "tokens" else _NOTHING
    if node.op == "copies":
        return _DRAWN
    if node.op not in REDUCTIONS:
        return _NOTHING
    if node.attributes[0] is Level.ROLLOUT:
        return _NOTHING
    if node.attributes[0] is Level.GROUP:
        return _GROUP
    by_group = finest(a.level for a in node.args) is Level.GROUP  # then it counts groups, not rollouts
    return _GROUP | _BATCH if by_group else _BATCH


def needs_below(roots: Iterable[Node]) -> frozenset[Need]:
    """What the roots and all nodes below them ask for."""
    return _NOTHING.union(*map(needs_of, walk(roots)))
