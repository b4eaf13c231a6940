"""What must be looked at while a compiled spec runs: operators that can have no result.

What `if`, `when` and `where` do not select never raises, so a check holds only where its value is
asked for. `demand` follows that from the results down; what the domains prove needs no check.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from rewardspec.ir.graph import Graph, Node, can_fail, conjuncts, walk
from rewardspec.ops.domain import Domain, Level, interval
from rewardspec.ops.elementwise import ELEMENTWISE, elementwise_domain
from rewardspec.ops.reductions import REDUCTIONS

MOST_PATHS = 8  # ways to reach a value that are told apart; beyond them it counts as always asked for

Path = frozenset[Node]


@dataclass(frozen=True)
class Check:
    """`bad` must hold nowhere; `what` says what it means if it does."""

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
        failing = graph.any_of(bad)
        if failing.constant != 0:
            checks.append(Check(failing, _words(graph, node)))
    return checks


def _key(path: Path) -> list[int]:
    return sorted(c.id for c in path)


def demand(graph: Graph, roots: list[Node], order: list[Node]) -> dict[Node, set[Path]]:
    """For every node the conditions under which its value is asked for, as alternatives."""
    asked: dict[Node, set[Path]] = {node: set() for node in order}

    def ask(node: Node, path: Path) -> None:
        paths = asked[node]
        if any(other <= path for other in paths):
            return
        paths -= {other for other in paths if path < other}
        paths.add(path)
        if len(paths) > MOST_PATHS:
            asked[node] = {frozenset()}

    for root in roots:
        ask(root, frozenset())
    for node in reversed(order):
        for path in sorted(asked[node], key=_key):  # an order of its own: nodes are made on the way
            if node.op == "if":
                condition, then, otherwise = node.args
                ask(condition, path)
                ask(then, path | conjuncts(condition))
                ask(otherwise, path | {graph.negation(condition)})
            elif node.op in ("and", "or"):  # as in Python: what the first decides, the second is not asked
                first, second = node.args
                ask(first, path)
                ask(second, path | (conjuncts(first) if node.op == "and" else {graph.negation(first)}))
            elif node.op in REDUCTIONS:
                x, where, *by = node.args
                level = node.attributes[0]
                outer = _over(graph, path, level)
                for arg in (where, *by):
                    ask(arg, outer)
                ask(x, outer | (frozenset() if where.constant == 1 else conjuncts(where)))
            elif node.op == "copies":  # scores of all kept groups go into one draw
                keep, score = node.args
                outer = _over(graph, path, Level.BATCH)
                ask(keep, outer)
                ask(score, outer | conjuncts(keep))
            elif node.op == "coalesce":
                x, otherwise = node.args
                ask(x, path)
                ask(otherwise, path | {graph.negation(graph.present(x))})
            else:
                for arg in node.args:
                    ask(arg, path if arg.level is node.level else _over(graph, path, arg.level))
    return asked


def _over(graph: Graph, path: Path, level: Level) -> Path:
    """A path as seen from a coarser level: it is taken if any rollout takes it."""
    coarse = {c for c in path if c.level <= level}
    fine = [c for c in path if c.level > level]
    if fine:
        condition = graph.all_of(sorted(fine, key=lambda c: c.id))
        coarse.add(graph.reduce("any", condition, graph.const(1), None, level))
    return frozenset(coarse)


def _undefined(graph: Graph, node: Node, path: Path) -> Node:
    """Whether a node has no result, given the conditions on the path to it."""
    if node.op == "required":
        return graph.negation(graph.present(node.args[0]))
    domains = [_narrowed(a, path) for a in node.args]
    op = ELEMENTWISE[node.op]
    if not op.undefined(*domains):
        return graph.const(0)
    zero = graph.const(0)
    compare = partial(graph.compare, asked=False)
    match node.op:
        case "/":
            above, below = node.args  # a missing value divided by anything is missing
            return graph.both(compare("==", below, zero), graph.present(above))
        case "log":
            return compare("<=", node.args[0], zero)
        case "sqrt":
            return compare("<", node.args[0], zero)
        case "**":
            base, exponent = node.args  # the power of a missing value, or to one, is missing
            whole = graph.either(
                compare("==", graph.apply("floor", exponent), exponent), graph.negation(graph.present(exponent))
            )
            broken = graph.both(compare("<", base, zero), graph.negation(whole))
            pole = graph.both(compare("==", base, zero), compare("<", exponent, zero))
            return graph.either(broken, pole)
    raise AssertionError(f"`{node.op}` can be undefined, but nothing says when")


def _narrowed(node: Node, path: Path, depth: int = 8) -> Domain:
    """The domain of a node, cut by the comparisons with constants on the path."""
    domain = node.domain.present()
    if node.op in ("+", "-", "*", "/", "neg") and depth and domain.values is None:
        apart = {c.op for c in path if c.args == node.args} if node.op == "-" else set()
        if ">" in apart:
            return interval(Fraction(0), domain.hi, lo_open=True)
        inner = tuple(_narrowed(a, path, depth - 1) for a in node.args)
        domain = elementwise_domain(ELEMENTWISE[node.op], inner)
    for condition in path:
        negated = condition.op == "not"
        compare = condition.args[0] if negated else condition
        if len(compare.args) != 2 or compare.args[0] is not node or compare.args[1].constant is None:
            continue
        limit = compare.args[1].constant
        sign = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}.get(compare.op) if negated else compare.op
        if domain.values is not None:
            if sign in _HOLDS:
                values = tuple(v for v in domain.values if _HOLDS[sign](v, limit))
                domain = replace(domain, values=values)
                if domain.values:
                    domain = replace(domain, lo=domain.values[0], hi=domain.values[-1])
        elif sign in (">", ">=") and limit >= domain.lo:
            domain = replace(domain, lo=limit, lo_open=sign == ">")
        elif sign in ("<", "<=") and limit <= domain.hi:
            domain = replace(domain, hi=limit, hi_open=sign == "<")
        elif sign == "!=" and limit == domain.lo:
            domain = replace(domain, lo_open=True)
        elif sign == "!=" and limit == domain.hi:
            domain = replace(domain, hi_open=True)
    return domain


_HOLDS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "!=": operator.ne}


def _words(graph: Graph, node: Node) -> str:
    if node.op == "required":
        x = node.args[0]
        return f"`{graph.names.get(x, x.attributes[0] if x.op == 'column' else 'a value')}` is missing"
    span = graph.spans.get(node)
    text = " ".join(span.text.split())[:80] if span else node.op
    what = {
        "/": "a division by 0",
        "log": "the log of 0 or less",
        "sqrt": "the root of less than 0",
        "**": "a power without a value",
    }[node.op]
    return f"`{text}` is {what}"
