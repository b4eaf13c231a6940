"""The graph, which makes nodes: `graph.apply("+", x, zero)` is `x`.

Every node has its level and domain from the start. A rule of `rules.py` that applies gives a simpler node instead. The
components axis is unrolled before: a bundle is a tuple of nodes (`lower/`).
"""

from __future__ import annotations

from fractions import Fraction
from math import inf
from typing import Any

from rewardspec.ir.conditions import conjuncts, missing_despite
from rewardspec.ir.node import Node, can_fail, canonical, evaluate, is_elementwise, walk
from rewardspec.ir.rules import Draft, simplified
from rewardspec.ir.states import States
from rewardspec.ops.domain import CONDITION, NOTHING, Bound, Domain, Level, finest, finite, interval
from rewardspec.ops.elementwise import ELEMENTWISE, elementwise_domain
from rewardspec.ops.operators import REDUCTIONS, SCANS
from rewardspec.text.source import Span

__all__ = [
    "DEEPEST_NODE",
    "MOST_NODES",
    "Graph",
    "Node",
    "TooLarge",
    "can_fail",
    "canonical",
    "conjuncts",
    "evaluate",
    "is_elementwise",
    "walk",
]

MOST_NODES = 10_000
DEEPEST_NODE = 1000  # longest way from a node down to a leaf

ZERO = Fraction(0)


class TooLarge(Exception):
    """The graph has more than `MOST_NODES` nodes, or is deeper than `DEEPEST_NODE`."""


def domain_at(x: Node, level: Level) -> Domain:
    """The domain of `x` where values of `level` need it: a mean over a list has a value at every item of it."""
    if level.listed and x.domain.missing and not missing_despite(x, frozenset(), level):
        return x.domain.present()
    return x.domain


class Graph:
    """Makes and keeps nodes. names: a node's name in the spec. spans: the text that a node is from."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.most = MOST_NODES
        self.depth: dict[Node, int] = {}
        self.failing: set[Node] = set()  # nodes that a run may find undefined, or with such operands
        self._interned: dict[tuple[object, ...], Node] = {}
        self.names: dict[Node, str] = {}
        self.spans: dict[Node, Span] = {}
        self.here: Span | None = None  # the text being lowered
        # caches: values are shared, and without caches the time would be exponential
        self._assumed: dict[tuple[Node, frozenset[Node]], Node] = {}
        self._present: dict[Node, Node] = {}
        self._states = States()

    # Making nodes --------------------------------------------------------------------------------

    def node(self, op: str, args: tuple[Node, ...], attributes: tuple[Any, ...], level: Level, domain: Domain) -> Node:
        key = (op, tuple(a.id for a in args), attributes, level)
        found = self._interned.get(key)
        if found is None:
            depth = 1 + max((self.depth[a] for a in args), default=0)
            if len(self.nodes) >= self.most or depth > DEEPEST_NODE:
                raise TooLarge
            found = Node(len(self.nodes), op, args, attributes, level, domain)
            self.nodes.append(found)
            self.depth[found] = depth
            if can_fail(found) or any(a in self.failing for a in args):
                self.failing.add(found)
            self._interned[key] = found
            if self.here is not None:
                self.spans[found] = self.here
        return found

    def made(self, draft: Draft) -> Node:
        """The simplified draft, or else its node."""
        return simplified(draft) or self._node(draft)

    def refined(self, draft: Draft) -> Node:
        """As `made`, with the exact set of values where the inputs have few joint states."""
        return simplified(draft) or self._refined(self._node(draft))

    def _node(self, draft: Draft) -> Node:
        return self.node(draft.op, draft.args, draft.attributes, draft.level, draft.domain)

    def const(self, value: Fraction | int, level: Level = Level.BATCH) -> Node:
        """A constant; at a finer level one for each rollout or group, which can be reduced."""
        value = Fraction(value)
        return self.node("const", (), (value,), level, finite([value]))

    def missing(self) -> Node:
        return self.node("missing", (), (), Level.BATCH, NOTHING)

    def given(self, name: str, domain: Domain, level: Level = Level.BATCH) -> Node:
        """A value of the call or the batch: `step`, `group_size`, `eps`."""
        return self.node("given", (), (name,), level, domain)

    def column(self, name: str, level: Level, domain: Domain) -> Node:
        return self.node("column", (), (name,), level, domain)

    def spread(self, x: Node, level: Level = Level.ROLLOUT) -> Node:
        """`x`, of a coarser level, repeated for every rollout (or group)."""
        if x.level >= level:
            return x
        if x.op in ("const", "missing"):
            return self.node(x.op, (), x.attributes, level, x.domain)
        return self.node("spread", (x,), (level,), level, x.domain)

    def apply(self, name: str, *args: Node) -> Node:
        """An elementwise operator; missing operands make the result missing.

        Conditions (`and or not`, comparisons) are built by `compare`, `both`, `either`, `negation`.
        """
        op = ELEMENTWISE[name]
        level = finest(a.level for a in args)
        domain = lambda: elementwise_domain(op, tuple(domain_at(a, level) for a in args))  # noqa: E731
        return self.refined(Draft(self, name, args, level, domain))

    def if_(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """`then` where the condition (never missing) holds, else `otherwise`."""
        level = finest((condition.level, then.level, otherwise.level))
        if condition.op == "spread" and finest((then.level, otherwise.level)) is level:
            condition = condition.args[0]
        known = conjuncts(condition)
        then = self.assume(then, known)

        def domain() -> Domain:
            selected = then.domain if missing_despite(then, known, level) else then.domain.present()
            return selected.union(domain_at(otherwise, level))

        return self.refined(Draft(self, "if", (condition, then, otherwise), level, domain))

    def assume(self, x: Node, known: frozenset[Node]) -> Node:
        """`x` simplified under the conditions `known`: choices that they decide are replaced by the branch."""
        if (x, known) not in self._assumed:
            self._assumed[x, known] = self._assume(x, known)
        return self._assumed[x, known]

    def _assume(self, x: Node, known: frozenset[Node]) -> Node:
        if x.op == "if" and conjuncts(x.args[0]) <= known:
            return self.spread(self.assume(x.args[1], known), x.level)
        if x.op in ELEMENTWISE and not x.boolean:
            args = tuple(self.assume(a, known) for a in x.args)
            return x if args == x.args else self.spread(self.apply(x.op, *args), x.level)
        return x

    def present(self, x: Node) -> Node:
        """Whether `x` is present."""
        if x not in self._present:
            self._present[x] = self.made(Draft(self, "present", (x,), x.level, lambda: CONDITION))
        return self._present[x]

    def coalesce(self, x: Node, otherwise: Node) -> Node:
        """`x` where it is present, else `otherwise`."""
        level = finest((x.level, otherwise.level))
        draft = Draft(self, "coalesce", (x, otherwise), level, lambda: x.domain.present().union(otherwise.domain))
        return self.made(draft)

    def reduce(
        self, name: str, x: Node, where: Node, by: Node | None, over: Level, parameter: Fraction | None = None
    ) -> Node:
        """A reduction of `x` over rollouts (of a list), groups or the batch; missing values are ignored."""
        rule = REDUCTIONS[name]
        inner = finest((x.level, where.level, Level.BATCH if by is None else by.level))
        empty = x.domain.missing or where.constant != 1 or inner.listed  # a list can be empty
        domain = rule.domain(x.domain.present(), empty)
        if x.domain.values == ():
            domain = domain.or_missing(rule.missing_when_empty)
        keeps_level = by is not None or rule.keeps_level
        level = inner if keeps_level else over
        args = (x, where) if by is None else (x, where, by)
        return self.made(Draft(self, name, args, level, lambda: domain, (over, parameter)))

    def position(self, level: Level) -> Node:
        """The place of every item in its list, from 1."""
        return self.node("position", (), (), level, interval(Fraction(1), inf))

    def scan(self, name: str, x: Node, parameter: Fraction | None = None) -> Node:
        """A value for every item of a list, from the items of its rollout: `before`, `returns`."""
        return self.node(name, (x,), (parameter,), x.level, SCANS[name].domain(x.domain.present()))

    def sum_components(self, terms: list[Node]) -> Node:
        """The sum of the present terms; missing where none is present."""

        def domain() -> Domain:
            lo: Bound = sum((min(t.domain.lo, ZERO) if t.domain.missing else t.domain.lo for t in terms), ZERO)
            hi: Bound = sum((max(t.domain.hi, ZERO) if t.domain.missing else t.domain.hi for t in terms), ZERO)
            return interval(lo, hi, missing=all(t.domain.missing for t in terms))

        return self.refined(Draft(self, "sum_components", tuple(terms), finest(t.level for t in terms), domain))

    # Conditions: never missing, so that `not` is a plain complement ------------------------------

    def compare(self, operator: str, a: Node, b: Node, asked: bool = True) -> Node:
        """Whether the comparison holds; false where an operand is missing.

        asked: its operands are evaluated, so an undefined one is an error even if the result is known.
        """

        def domain() -> Domain:
            found = ELEMENTWISE[operator].domain(a.domain.present(), b.domain.present())
            return found.union(finite([ZERO])) if a.domain.missing or b.domain.missing else found

        draft = Draft(self, operator, (a, b), finest((a.level, b.level)), domain, asked=asked)
        simpler = simplified(draft)
        if simpler is not None:
            return simpler
        node = self._refined(self._node(draft))
        if operator == "!=":  # NaN is unequal to everything in torch
            return self.all_of([self.present(a), self.present(b), node])
        return node

    def both(self, a: Node, b: Node) -> Node:
        return self._logic("and", a, b)

    def either(self, a: Node, b: Node) -> Node:
        return self._logic("or", a, b)

    def negation(self, a: Node) -> Node:
        return self._logic("not", a)

    def _logic(self, op: str, *args: Node) -> Node:
        level = finest(a.level for a in args)
        return self.refined(Draft(self, op, args, level, lambda: ELEMENTWISE[op].domain(*(a.domain for a in args))))

    def all_of(self, conditions: list[Node]) -> Node:
        result = self.const(1)
        for condition in conditions:
            result = self.both(result, condition)
        return result

    def any_of(self, conditions: list[Node]) -> Node:
        result = self.const(0)
        for condition in conditions:
            result = self.either(result, condition)
        return result

    def fails(self, *nodes: Node) -> bool:
        """Whether any of these may be undefined, so that an evaluated one cannot be removed."""
        return any(node in self.failing for node in nodes)

    def _refined(self, node: Node) -> Node:
        if node.domain.values is not None and len(node.domain.values) <= 1:
            return node
        domain = self._states.domain(node)
        if domain is None:
            return node
        if not node.domain.missing:  # states do not know that a list with an item has a mean
            domain = domain.present()
        if domain.constant is not None:
            return self.const(domain.constant, node.level)
        if domain.values is not None and domain != node.domain:
            object.__setattr__(node, "domain", domain)  # it has no users yet
        return node
