"""Nodes and the graph that makes them.

A node knows its level and domain from the moment it exists. Simplifications happen here, as nodes
are made, and only where they are exact for every value the domains allow, missing ones included.
The components axis is unrolled before this point: a bundle is a tuple of nodes (`lower.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from rewardspec.ops.domain import CONDITION, NOTHING, Bound, Domain, Level, finite, interval
from rewardspec.ops.elementwise import ELEMENTWISE, elementwise_domain, elementwise_exact
from rewardspec.ops.exact import Inexact
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.source import Span

MOST_NODES = 10_000
DEEPEST = 1000  # longest way from a node down to a leaf
MOST_STATES = 512  # joint states of a node's inputs that are tried to find its set of values

ZERO, ONE = Fraction(0), Fraction(1)


class TooLarge(Exception):
    """A spec that comes down to more nodes than `MOST_NODES`."""


@dataclass(frozen=True, eq=False)
class Node:
    """One value. `attributes` are what is not a node: a column's name, the axis of a reduction.

    Reductions have the arguments `(x, where)` or `(x, where, by)` and the attributes `(over, parameter)`.
    """

    id: int
    op: str
    args: tuple[Node, ...]
    attributes: tuple
    level: Level
    domain: Domain

    def __repr__(self) -> str:
        inner = ", ".join([*map(str, self.attributes), *(f"%{a.id}" for a in self.args)])
        return f"%{self.id} = {self.op}({inner})"

    @property
    def constant(self) -> Fraction | None:
        return self.attributes[0] if self.op == "const" else None

    @property
    def boolean(self) -> bool:
        """Whether it is computed as a condition (torch.bool), not as a number."""
        if self.op == "spread":
            return self.args[0].boolean
        return self.op in ("present", "any", "all") or (self.op in ELEMENTWISE and ELEMENTWISE[self.op].boolean)


class Graph:
    """Makes and keeps nodes. `names` holds what a spec calls a node, `spans` the text that caused it."""

    def __init__(self):
        self.nodes: list[Node] = []
        self.most = MOST_NODES
        self.depth: dict[Node, int] = {}
        self.failing: set[Node] = set()  # which may have no value: it or what it is computed from is looked at in a run
        self._interned: dict[tuple, Node] = {}
        self.names: dict[Node, str] = {}
        self.spans: dict[Node, Span] = {}
        self.here: Span | None = None  # the text being lowered
        # what is found of a node once is kept: values are shared, and looking again at each use would not end
        self._assumed: dict[tuple[Node, frozenset[Node]], Node] = {}
        self._present: dict[Node, Node] = {}
        self._states: dict[Node, tuple[tuple[Node, ...], dict] | None] = {}

    # Making nodes --------------------------------------------------------------------------------

    def node(self, op: str, args: tuple[Node, ...], attributes: tuple, level: Level, domain: Domain) -> Node:
        key = (op, tuple(a.id for a in args), attributes, level)
        found = self._interned.get(key)
        if found is None:
            depth = 1 + max((self.depth[a] for a in args), default=0)
            if len(self.nodes) >= self.most or depth > DEEPEST:
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

    def const(self, value: Fraction | int, level: Level = Level.BATCH) -> Node:
        """A constant; at a finer level it is one for each rollout or group, and can be reduced."""
        value = Fraction(value)
        return self.node("const", (), (value,), level, finite([value]))

    def missing(self) -> Node:
        return self.node("missing", (), (), Level.BATCH, NOTHING)

    def given(self, name: str, domain: Domain, level: Level = Level.BATCH) -> Node:
        """A value that comes with the call or the batch: `step`, `group_size`, `eps`."""
        return self.node("given", (), (name,), level, domain)

    def column(self, name: str, level: Level, domain: Domain) -> Node:
        return self.node("column", (), (name,), level, domain)

    def spread(self, x: Node, level: Level = Level.ROLLOUT) -> Node:
        """`x` as one value for every rollout (or group), though it is the same for several."""
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
        level = max(a.level for a in args)
        simpler = self._simpler(name, args)
        if simpler is not None:
            return self.spread(simpler, level)
        domain = elementwise_domain(op, tuple(a.domain for a in args))
        if all(a.op == "const" for a in args) and not (op.undefined and op.undefined(*(a.domain for a in args))):
            try:
                return self.const(elementwise_exact(op, tuple(a.constant for a in args)), level)
            except (Inexact, TypeError, ValueError):  # a root is no Fraction: it stays a node
                pass
        return self._refined(self.node(name, args, (), level, domain))

    def if_(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """`then` where the condition (never missing) holds, else `otherwise`."""
        level = max(condition.level, then.level, otherwise.level)
        if condition.constant is not None:
            return self.spread(then if condition.constant else otherwise, level)
        if condition.op == "spread" and max(then.level, otherwise.level) is level:
            condition = condition.args[0]
        known = conjuncts(condition)
        then = self.assume(then, known)
        if then is otherwise and not self.fails(condition):
            return self.spread(then, level)
        if condition.op == "present" and condition.args[0] is then and otherwise.op == "missing":
            return then
        if then.constant == 1 and otherwise.constant == 0:
            return self.spread(condition, level)
        selected = then.domain if missing_despite(then, known) else then.domain.present()
        domain = selected.union(otherwise.domain)
        return self._refined(self.node("if", (condition, then, otherwise), (), level, domain))

    def assume(self, x: Node, known: frozenset[Node]) -> Node:
        """`x` simplified where the conditions `known` hold: a choice that they decide is made."""
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
        """Whether `x` is there."""
        if x not in self._present:
            self._present[x] = self._find_present(x)
        return self._present[x]

    def _find_present(self, x: Node) -> Node:
        if not x.domain.missing:
            return self.const(1, x.level)
        if x.op == "missing":
            return self.const(0, x.level)
        if x.op == "if":  # the usual way a value goes missing is a gate
            condition, then, otherwise = x.args
            then, otherwise = self.present(then), self.present(otherwise)
            if then.op == "const" or otherwise.op == "const":
                yes, no = self.both(condition, then), self.both(self.negation(condition), otherwise)
                return self.spread(self.either(yes, no), x.level)
        if x.op in ELEMENTWISE:
            return self.spread(self.all_of([self.present(a) for a in x.args]), x.level)
        return self.node("present", (x,), (), x.level, CONDITION)

    def coalesce(self, x: Node, otherwise: Node) -> Node:
        level = max(x.level, otherwise.level)
        if not x.domain.missing:
            return self.spread(x, level)
        if x.op == "missing":
            return self.spread(otherwise, level)
        domain = x.domain.present().union(otherwise.domain)
        return self.node("coalesce", (x, otherwise), (), level, domain)

    def reduce(self, name: str, x: Node, where: Node, by: Node | None, over: Level, parameter=None) -> Node:
        """A reduction of `x` over groups (`over` GROUP) or the batch; missing values take no part."""
        rule = REDUCTIONS[name]
        may_be_empty = x.domain.missing or where.constant != 1
        domain = rule.domain(x.domain.present(), may_be_empty)
        if x.domain.values == ():
            domain = domain.or_missing(rule.missing_when_empty)
        keeps_level = by is not None or rule.keeps_level
        level = max(x.level, where.level) if keeps_level else Level.GROUP if over is Level.GROUP else Level.BATCH
        if by is None and not may_be_empty and domain.constant is not None and not self.fails(x):
            return self.const(domain.constant, level)
        if name in ("std", "var") and x.domain.present().constant is not None and not self.fails(x, where):
            return self.const(0, level)
        if (
            name == "mean"
            and over is Level.BATCH
            and by is None
            and x.level is Level.ROLLOUT
            and where.level < Level.ROLLOUT
        ):
            from rewardspec.ir.patterns import sums_to_zero  # it looks for shapes in graphs, so it comes later

            if sums_to_zero(self, x):
                return self.const(0, level)
        args = (x, where) if by is None else (x, where, by)
        return self.node(name, args, (over, parameter), level, domain)

    def sum_components(self, terms: list[Node]) -> Node:
        """The sum of the terms that are present: missing where none is."""
        if len(terms) == 1:
            return terms[0]
        level = max(t.level for t in terms)
        lo: Bound = sum((min(t.domain.lo, ZERO) if t.domain.missing else t.domain.lo for t in terms), ZERO)
        hi: Bound = sum((max(t.domain.hi, ZERO) if t.domain.missing else t.domain.hi for t in terms), ZERO)
        domain = interval(lo, hi, missing=all(t.domain.missing for t in terms))
        return self._refined(self.node("sum_components", tuple(terms), (), level, domain))

    # Conditions: never missing, so that `not` is a plain complement ------------------------------

    def compare(self, operator: str, a: Node, b: Node, asked: bool = True) -> Node:
        """Whether the comparison holds; it does not where an operand is missing.

        asked: its operands are asked for, so that one without a value is an error whatever the comparison gives.
        """
        level = max(a.level, b.level)
        if "missing" in (a.op, b.op):
            return self.const(0, level)
        domain = ELEMENTWISE[operator].domain(a.domain.present(), b.domain.present())
        if a.domain.missing or b.domain.missing:
            domain = domain.union(finite([ZERO]))
        if domain.constant is not None and not (asked and self.fails(a, b)):
            return self.const(domain.constant, level)
        node = self._refined(self.node(operator, (a, b), (), level, domain))
        if operator == "!=":  # NaN is unequal to everything in torch
            return self.all_of([self.present(a), self.present(b), node])
        return node

    def both(self, a: Node, b: Node) -> Node:
        level = max(a.level, b.level)
        if a.constant is not None:
            return self.spread(b if a.constant else a, level)
        if b.constant is not None and (b.constant or not self.fails(a)):
            return self.spread(a if b.constant else b, level)
        if a is b:
            return a
        return self._refined(self.node("and", (a, b), (), level, ELEMENTWISE["and"].domain(a.domain, b.domain)))

    def either(self, a: Node, b: Node) -> Node:
        level = max(a.level, b.level)
        if a.constant is not None:
            return self.spread(a if a.constant else b, level)
        if b.constant is not None and not (b.constant and self.fails(a)):
            return self.spread(b if b.constant else a, level)
        if a is b:
            return a
        return self._refined(self.node("or", (a, b), (), level, ELEMENTWISE["or"].domain(a.domain, b.domain)))

    def negation(self, a: Node) -> Node:
        if a.constant is not None:
            return self.const(1 - a.constant, a.level)
        if a.op == "not":
            return a.args[0]
        return self._refined(self.node("not", (a,), (), a.level, ELEMENTWISE["not"].domain(a.domain)))

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
        """Whether any of these may have no value, so that it cannot be left out where it is asked for."""
        return any(node in self.failing for node in nodes)

    # Simplification ------------------------------------------------------------------------------

    def _simpler(self, name: str, args: tuple[Node, ...]) -> Node | None:
        for a in args:
            if a.op == "missing":
                return a
        if len(args) == 1:
            if name == "neg" and args[0].op == "neg":
                return args[0].args[0]
            return None
        a, b = args
        x, y = a.constant, b.constant
        match name:
            case "+" if x == 0:
                return b
            case "+" | "-" if y == 0:
                return a
            case "-" if x == 0:
                return self.apply("neg", b)
            case "*" if x == 1:
                return b
            case "*" | "/" | "**" if y == 1:
                return a
            case "*" if x == 0 and b.domain.bounded and not b.domain.missing and not self.fails(b):
                return a
            case "*" if y == 0 and a.domain.bounded and not a.domain.missing and not self.fails(a):
                return b
            case "minimum" | "maximum" if a is b:
                return a
            case "minimum" if a.domain.hi <= b.domain.lo and not b.domain.missing and not self.fails(b):
                return a
            case "minimum" if b.domain.hi <= a.domain.lo and not a.domain.missing and not self.fails(a):
                return b
            case "maximum" if a.domain.lo >= b.domain.hi and not b.domain.missing and not self.fails(b):
                return a
            case "maximum" if b.domain.lo >= a.domain.hi and not a.domain.missing and not self.fails(a):
                return b
        return None

    def _refined(self, node: Node) -> Node:
        """`node` with the exact set of its values where its inputs have few joint states."""
        if node.domain.values is not None and len(node.domain.values) <= 1:
            return node
        states = self.states(node)
        if states is None:
            return node
        values = set(states[1].values())
        missing = None in values
        values.discard(None)
        if not all(isinstance(v, Fraction) for v in values):
            return node
        domain = finite(values, missing)
        if domain.constant is not None:
            return self.const(domain.constant, node.level)
        if domain.values is not None and domain != node.domain:
            object.__setattr__(node, "domain", domain)  # not yet seen by anyone else
        return node

    def states(self, node: Node) -> tuple[tuple[Node, ...], dict[tuple, object]] | None:
        """The leaves of an elementwise node and its exact value for each of their joint states.

        None where a leaf has no finite domain, the states are too many, or a value is not exact.
        """
        if node not in self._states:
            self._states[node] = self._find_states(node)
        return self._states[node]

    def _find_states(self, node: Node):
        if not is_elementwise(node):
            return _leaf(node)
        inner = [self.states(a) for a in node.args]
        if any(i is None for i in inner):
            return _leaf(node) if node.boolean else None
        leaves = tuple(sorted({leaf for i in inner for leaf in i[0]}, key=lambda leaf: leaf.id))
        domains = [_possible(leaf.domain) for leaf in leaves]
        count = 1
        for values in domains:
            count *= len(values)
        if count > MOST_STATES:
            return None
        position = {leaf: i for i, leaf in enumerate(leaves)}
        places = [[position[leaf] for leaf in i[0]] for i in inner]
        table = {}
        try:
            for state in product(*domains):
                values = [i[1][tuple(state[p] for p in places)] for i, places in zip(inner, places, strict=True)]
                table[state] = evaluate(node, values)
        except (Inexact, ArithmeticError, ValueError):  # some state has no value, or no exact one
            return None
        return leaves, table


def can_fail(node: Node) -> bool:
    """Whether an operator may have no result for what its operands can be."""
    if node.op == "required":
        return True
    op = ELEMENTWISE.get(node.op)
    return op is not None and op.undefined is not None and op.undefined(*(a.domain for a in node.args))


@lru_cache(maxsize=MOST_NODES)
def conjuncts(condition: Node) -> frozenset[Node]:
    """The conditions that all hold where this one does."""
    if condition.op == "spread":
        return conjuncts(condition.args[0])
    if condition.op == "and":
        return conjuncts(condition.args[0]) | conjuncts(condition.args[1])
    return frozenset([condition])


@lru_cache(maxsize=MOST_NODES)
def missing_despite(x: Node, known: frozenset[Node]) -> bool:
    """Whether `x` can be missing where the conditions `known` hold."""
    if not x.domain.missing:
        return False
    if x.op in REDUCTIONS:
        value, where = x.args[:2]
        over, _ = x.attributes
        inside = where.constant == 1 or conjuncts(where) <= known
        if inside and not missing_despite(value, known):
            return False  # this very rollout is in the subset
        return not any(  # a spread, or a count, above 0 is one of something
            c.op == ">"
            and c.args[1].constant is not None
            and c.args[1].constant >= 0
            and c.args[0].op in ("std", "var", "count")
            and c.args[0].args == x.args
            and c.args[0].attributes[0] is over
            for c in known
        )
    if x.op in ELEMENTWISE or x.op == "spread":
        return any(missing_despite(a, known) for a in x.args)
    if any(x in c.args for c in known if c.op == "present" or c.op in _COMPARISONS):
        return False
    if x.op == "if":
        then, otherwise = x.args[1:]
        if conjuncts(x.args[0]) <= known:
            return missing_despite(then, known)
        return missing_despite(then, known) or missing_despite(otherwise, known)
    return True


_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})  # one that holds has both operands


def _leaf(node: Node):
    if node.domain.values is None:
        return None
    return (node,), {(v,): v for v in _possible(node.domain)}


def _possible(domain: Domain) -> tuple:
    return (*domain.values, None) if domain.missing else domain.values


def is_elementwise(node: Node) -> bool:
    """Whether a node's value at a rollout depends on its arguments at that rollout alone."""
    return node.op in ELEMENTWISE or node.op in ("if", "present", "coalesce", "sum_components", "spread")


def evaluate(node: Node, values: list):
    """The exact value of an elementwise node, given those of its arguments; None is missing."""
    match node.op:
        case "if":
            return values[1] if values[0] == 1 else values[2]
        case "present":
            return ZERO if values[0] is None else ONE
        case "coalesce":
            return values[1] if values[0] is None else values[0]
        case "spread":
            return values[0]
        case "sum_components":
            there = [v for v in values if v is not None]
            return sum(there[1:], there[0]) if there else None
    op = ELEMENTWISE[node.op]
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
    """The roots and all they depend on as text, the same for equal values wherever they were made."""
    number: dict[Node, int] = {}
    lines = []
    for node in walk(roots):
        number[node] = len(number)
        parts = [node.op, *map(str, node.attributes), str(node.level), str(node.domain)]
        lines.append(" ".join([*parts, *(f"%{number[a]}" for a in node.args)]))
    return "\n".join([*lines, *(f"%{number[root]}" for root in roots)])
