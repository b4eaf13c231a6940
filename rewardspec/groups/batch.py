"""The batch's normalisation: how the rest of a batch changes the advantages of one group.

Examples are `zscore(x, over=batch)` and verl's division by the batch's standard deviation. For the groups of one batch
they are an increasing affine map, which changes no order and no count. So a single group is judged by its advantages
before that normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping

from rewardspec.ir.graph import Graph
from rewardspec.ir.needs import needs_of
from rewardspec.ir.node import Node, walk
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.ops.domain import Level
from rewardspec.ops.operators import COMPARISONS, REDUCTIONS


def without_batch(graph: Graph, advantage: Node) -> tuple[Node, bool]:
    """The advantage before the batch's normalisation, and whether it then depends on nothing else in the batch."""
    root = _strip(graph, advantage, scale_only=False)
    return root, not any(over_batch(node) for node in walk([root]))


def normalisation(graph: Graph, advantage: Node) -> str:
    """What the batch's normalisation can do to an advantage: "none", "scale" or "shift" (and scale).

    It is the part that `without_batch` removes.
    """
    node, kind = advantage, "none"
    while True:
        found = match_zscore(graph, node)
        if found and _is_of_batch(found):
            node, kind = found.x, kind if found.centered and kind == "shift" else "scale" if found.centered else "shift"
            continue
        match node.op, node.args:
            case "if", (condition, then, otherwise) if otherwise.constant == 0 and (
                _of_batch(condition) or condition.level is Level.GROUP
            ):
                node = then
            case "/", (x, divisor) if _of_batch(divisor) and divisor.domain.lo >= 0:
                node, kind = x, kind if kind == "shift" else "scale"
            case "-", (x, shift) if _of_batch(shift):
                node, kind = x, "shift"
            case "*", (x, factor) if _is_pull(factor):
                node, kind = x, kind if kind == "shift" else "scale"
            case "*", (factor, x) if _is_pull(factor):
                node, kind = x, kind if kind == "shift" else "scale"
            case _:
                return kind


def over_batch(node: Node) -> bool:
    """Whether a node reads other groups."""
    return "batch" in needs_of(node)


def _is_of_batch(found: ZScore) -> bool:
    """Whether a z-score is one over the whole batch, of values that are never missing."""
    return found.over is Level.BATCH and not found.by and found.where is None and not found.x.domain.missing


def _of_batch(node: Node) -> bool:
    """One value for the batch that depends on its data."""
    return node.level is Level.BATCH and any(over_batch(n) for n in walk([node]))


def _strip(graph: Graph, node: Node, scale_only: bool) -> Node:
    """`node` without increasing affine maps that are the same for the whole batch.

    scale_only: keep shifts. The value is 0 in some groups, and a shift would move it against that 0.
    """
    found = match_zscore(graph, node)
    if found and _is_of_batch(found) and (found.centered or not scale_only):
        return _strip(graph, found.x, scale_only)
    match node.op, node.args:
        case "if", (condition, then, otherwise) if otherwise.constant == 0 and _of_batch(condition):
            return _strip(graph, then, scale_only)  # such a batch has no spread
        case "if", (condition, then, otherwise) if otherwise.constant == 0 and condition.level is Level.GROUP:
            return graph.if_(condition, _strip(graph, then, scale_only=True), otherwise)
        case "/", (x, divisor) if _of_batch(divisor) and divisor.domain.lo >= 0:
            return _strip(graph, x, scale_only)
        case "-", (x, shift) if _of_batch(shift) and not scale_only:
            return _strip(graph, x, scale_only)
        case "*", (x, factor) if _is_pull(factor):
            return _strip(graph, x, scale_only)
        case "*", (factor, x) if _is_pull(factor):
            return _strip(graph, x, scale_only)
    return node


def _is_pull(factor: Node) -> bool:
    """Whether it is a positive factor of a group that depends on the rest of the batch, such as one with `copies`."""
    return factor.level < Level.ROLLOUT and factor.domain.lo > 0 and any(over_batch(n) for n in walk([factor]))


# Invariance -----------------------------------------------------------------------------------------


def is_indifferent(graph: Graph, node: Node, root: Node, normalisation: str) -> bool:
    """Whether a condition keeps its value under every normalisation of `root` of this kind ("scale" or "shift")."""
    kinds: dict[Node, str | None] = {}
    for n in walk([node]):
        kinds[n] = _kind(n, root, normalisation, kinds)
    return kinds[node] == "free"


def _kind(n: Node, root: Node, normalisation: str, kinds: Mapping[Node, str | None]) -> str | None:
    """How a node changes with `root`: "free" (not at all), "scaled", "moved" (scaled and shifted), None if unknown."""
    if n is root:
        return "scaled" if normalisation == "scale" else "moved"
    inner = [kinds.get(a) for a in n.args]
    if all(k == "free" for k in inner):
        return "free"
    if None in inner:
        return None
    apart = {k for k in inner if k != "free"}
    kind = apart.pop() if len(apart) == 1 else None
    free = [a for a, k in zip(n.args, inner, strict=True) if k == "free"]
    if kind is None:
        return None
    if n.op in COMPARISONS:
        zero = all(a.constant == 0 for a in free)
        return "free" if zero and (not free or kind == "scaled") else None
    if n.op in ("minimum", "maximum"):
        return kind if all(a.constant == 0 for a in free) and (not free or kind == "scaled") else None
    if n.op in REDUCTIONS and inner[0] == kind and all(k == "free" for k in inner[1:]):
        if n.op in ("min", "max", "mean", "quantile", "kth"):
            return kind
        if n.op in ("std", "std_others"):
            return "scaled"
        if n.op == "rank":
            return "free"
        return "scaled" if n.op == "sum" and kind == "scaled" else None
    if n.op == "present":
        return "free"
    if n.op in ("if", "coalesce", "spread", "required"):
        choices = inner[1:] if n.op == "if" else inner
        same = all(
            k == kind or (a.constant == 0 and kind == "scaled") or a.op == "missing"
            for a, k in zip(n.args[1:] if n.op == "if" else n.args, choices, strict=True)
        )
        return kind if same and (n.op != "if" or inner[0] == "free") else None
    if n.op == "-" and inner == [kind, kind]:
        return "scaled"
    if kind == "scaled":
        if n.op in ("+", "-", "sum_components") and not free:
            return kind
        if n.op in ("neg", "abs") or (n.op == "*" and len(free) == 1) or (n.op == "/" and inner[1] == "free"):
            return kind
        if n.op == "/" and inner == ["scaled", "scaled"]:
            return "free"
    return None
