"""Checks that a compiled spec makes when it runs: `a / b` with b from [0, 1] needs `b == 0` to be false.

What `if`, `when` and `where` do not select never raises, so a check applies only where its value is evaluated.
`demand` finds where, from the results down. What domains prove needs no check.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from rewardspec.ir.conditions import conjuncts
from rewardspec.ir.graph import Graph
from rewardspec.ir.node import Node, can_fail, walk
from rewardspec.ops.domain import Domain, Level, interval
from rewardspec.ops.elementwise import ELEMENTWISE, elementwise_domain
from rewardspec.ops.operator import When
from rewardspec.ops.operators import COMPARISONS, REDUCTIONS

MOST_PATHS = 8  # of a node; more become one: what they share, and that one of the rest holds

Path = frozenset[Node]


@dataclass(frozen=True)
class Check:
    """`bad` must be false everywhere; `what` is the error where it is true."""

    bad: Node
    what: str


def find_checks(graph: Graph, roots: list[Node]) -> list[Check]:
    """The checks that the roots need, in the order of their nodes."""
    order = walk(roots)
    if not any(can_fail(node) for node in order):
        return []
    asked = demand(graph, roots, order)
    checks = []
    for node in order:
        if not can_fail(node):
            continue
        bad = [
            graph.all_of([_undefined(graph, node, path), *sorted(path, key=lambda c: c.id)])
            for path in sorted(asked[node], key=_key)
        ]
        failing = _any_of(graph, bad)
        if failing.constant != 0:
            checks.append(Check(failing, _words(graph, node)))
    return checks


def _key(path: Path) -> list[int]:
    return sorted(c.id for c in path)


def demand(graph: Graph, roots: list[Node], order: list[Node]) -> dict[Node, set[Path]]:
    """For each node, the alternative conditions under which it is evaluated."""
    asked: dict[Node, set[Path]] = {node: set() for node in order}

    def ask(node: Node, path: Path) -> None:
        paths = asked[node]
        if any(other <= path for other in paths):
            return
        paths -= {other for other in paths if path < other}
        paths.add(path)
        if len(paths) > MOST_PATHS:
            asked[node] = {_any_path(graph, paths)}

    for root in roots:
        ask(root, frozenset())
    for node in reversed(order):
        for path in sorted(asked[node], key=_key):  # sorted, because this makes nodes, whose order must not vary
            rules = node.operator.asked
            over = node.attributes[0] if node.op in REDUCTIONS else Level.BATCH if node.op == "copies" else None
            outer = path if over is None else _over(graph, path, over)  # `copies` draws once from all kept groups
            for place, arg in enumerate(node.args):
                if place in rules:
                    when, other = rules[place]
                    ask(arg, outer | _where(graph, when, node.args[other]))
                else:
                    ask(arg, outer if rules or arg.level is node.level else _over(graph, path, arg.level))
    return asked


def _any_path(graph: Graph, paths: set[Path]) -> Path:
    """The path that is taken where any of these is."""
    shared = frozenset.intersection(*paths)
    rest = [graph.all_of(sorted(path - shared, key=lambda c: c.id)) for path in sorted(paths, key=_key)]
    return shared | conjuncts(_any_of(graph, rest))


def _any_of(graph: Graph, conditions: list[Node]) -> Node:
    """Whether any of these holds; where they are of two lists, which cannot meet: of a rollout, anywhere in them."""
    if len({c.level for c in conditions if c.level.listed}) > 1:
        one = graph.const(1)
        conditions = [graph.reduce("any", c, one, None, Level.ROLLOUT) if c.level.listed else c for c in conditions]
    return graph.any_of(conditions)


def _where(graph: Graph, when: When, other: Node) -> Path:
    """The conditions under which `other` is in the state `when`."""
    if when is When.HOLDS:
        return frozenset() if other.constant == 1 else conjuncts(other)
    return frozenset([graph.negation(other if when is When.FAILS else graph.present(other))])


def _over(graph: Graph, path: Path, level: Level) -> Path:
    """The path at a coarser level: it is taken if any rollout takes it."""
    coarse = {c for c in path if c.level <= level}
    fine = [c for c in path if c.level > level]
    if fine:
        condition = graph.all_of(sorted(fine, key=lambda c: c.id))
        coarse.add(graph.reduce("any", condition, graph.const(1), None, level))
    return frozenset(coarse)


def _undefined(graph: Graph, node: Node, path: Path) -> Node:
    """Whether a node is undefined, given the conditions on the path to it."""
    undefined = node.operator.undefined
    assert undefined is not None, f"`{node.op}` always has a result"
    if not undefined.possible(*(_narrowed(a, path) for a in node.args)):
        return graph.const(0)
    found: Node = undefined.condition(graph, *node.args)
    return found


def _narrowed(node: Node, path: Path, depth: int = 8) -> Domain:
    """The domain of a node, narrowed by the comparisons with constants on the path."""
    domain = node.domain.present()
    op = ELEMENTWISE.get(node.op)
    if op is not None and op.arithmetic and depth and domain.values is None:
        apart = {c.op for c in path if c.args == node.args} if node.op == "-" else set()
        if ">" in apart:
            return interval(Fraction(0), domain.hi, lo_open=True)
        inner = tuple(_narrowed(a, path, depth - 1) for a in node.args)
        domain = elementwise_domain(op, inner)
    for condition in sorted(path, key=lambda c: c.id):
        negated = condition.op == "not"
        compare = condition.args[0] if negated else condition
        if len(compare.args) != 2 or compare.args[0] is not node or compare.args[1].constant is None:
            continue
        limit = compare.args[1].constant
        if compare.op not in COMPARISONS or compare.op == ("!=" if negated else "=="):
            continue
        sign = ELEMENTWISE[compare.op].opposite if negated else compare.op
        if domain.values is not None:
            if sign != "==":
                values = tuple(v for v in domain.values if ELEMENTWISE[sign].exact(v, limit))
                domain = replace(domain, values=values)
                if domain.values:
                    domain = replace(domain, lo=domain.values[0], hi=domain.values[-1])
        elif sign in (">", ">=") and limit >= domain.lo:
            domain = replace(domain, lo=limit, lo_open=sign == ">" or (limit == domain.lo and domain.lo_open))
        elif sign in ("<", "<=") and limit <= domain.hi:
            domain = replace(domain, hi=limit, hi_open=sign == "<" or (limit == domain.hi and domain.hi_open))
        elif sign == "!=" and limit == domain.lo:
            domain = replace(domain, lo_open=True)
        elif sign == "!=" and limit == domain.hi:
            domain = replace(domain, hi_open=True)
    return domain


def _words(graph: Graph, node: Node) -> str:
    if node.op == "required":
        (x,) = node.args
        x = x.args[0] if x.op == "spread" else x
        what = graph.names.get(x, x.attributes[0] if x.op == "column" else "a value")
    else:
        span = graph.spans.get(node)
        what = " ".join(span.text.split())[:80] if span else node.op
    undefined = node.operator.undefined
    assert undefined is not None
    return f"`{what}` is {undefined.words}"
