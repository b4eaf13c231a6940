"""All simplifications, in one table: `x + 0 = x`. They are tried in this order before a node is made.

A rule holds for every value in the domains of the operands, missing ones included. A rule that removes an operand
lists it in `drops`: it does not apply where that operand is evaluated and may be undefined, since a run must still
raise there. `tried` checks that for all rules.

To add one, add a `Rule`, and in `tests/unit/test_simplification.py` operands that it applies to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rewardspec.ir.node import Node
from rewardspec.ir.patterns import sums_to_zero
from rewardspec.ops.domain import Domain, Level
from rewardspec.ops.elementwise import elementwise_exact
from rewardspec.ops.exact import Inexact
from rewardspec.ops.operator import Elementwise
from rewardspec.ops.operators import COMPARISONS, ELEMENTWISE, GROUP_SPREADS, OPERATORS, REDUCTIONS

if TYPE_CHECKING:
    from rewardspec.ir.graph import Graph


@dataclass
class Draft:
    """A node before it is made. asked: its operands are evaluated, whatever its value is.

    Of a reduction, `args` are x and where, and `by` where it has one; `attributes` the axis and the parameter.
    """

    graph: Graph
    op: str
    args: tuple[Node, ...]
    level: Level
    find_domain: Callable[[], Domain]
    attributes: tuple[object, ...] = ()
    asked: bool = True

    @cached_property
    def domain(self) -> Domain:
        """The domain of its values."""
        return self.find_domain()


@dataclass(frozen=True)
class Rule:
    """If `when(draft, *operands)`, then `result(draft, *operands)` has the value of the draft; None: it does not apply.

    operators: names, or None for all `Elementwise` operators on numbers. why: why it is exact.
    drops: the places of evaluated operands that the result does not evaluate.
    unasked: a removed operand is not evaluated in the draft either, though it may be undefined: next to a missing
    value, or where only its presence counts.
    """

    name: str
    operators: tuple[str, ...] | None
    when: Callable[..., bool]
    result: Callable[..., Node | None]
    why: str
    drops: tuple[int, ...] = ()
    unasked: bool = False


def _constants(d: Draft, *args: Node) -> Node | None:
    op = ELEMENTWISE[d.op]
    try:
        value = elementwise_exact(op, tuple(a.constant for a in args))
        return d.graph.const(value, d.level)
    except (Inexact, TypeError, ValueError):  # a root is not a Fraction: it stays a node
        return None


def _defined_constants(d: Draft, *args: Node) -> bool:
    undefined = ELEMENTWISE[d.op].undefined
    return all(a.op == "const" for a in args) and not (undefined and undefined.possible(*(a.domain for a in args)))


def _lies(b: Node) -> bool:
    """Whether a value is always a finite number."""
    return b.domain.bounded and not b.domain.missing


def _selected(graph: Graph, x: Node, condition: Node) -> Node:
    """What a decided condition selects: one of items nothing in a rollout without items, where nothing may raise."""
    level, known = condition.level, dict[Node, Node]()

    def at_items(x: Node) -> Node:
        if x not in known:
            known[x] = moved(x) if graph.fails(x) else graph.spread(x, level)
        return known[x]

    def moved(x: Node) -> Node:
        if x.op == "required":
            return graph.node(x.op, (at_items(x.args[0]),), (), level, x.domain)
        if isinstance(x.operator, Elementwise) and not x.boolean:
            return graph.apply(x.op, *map(at_items, x.args))
        return graph.spread(x, level)

    return at_items(x) if level.listed else x


def _present_through_gate(d: Draft, x: Node) -> Node | None:
    """Presence of a gated value: the condition and the branches."""
    graph, (condition, *branches) = d.graph, x.args
    then, otherwise = map(graph.present, branches)
    if then.op != "const" and otherwise.op != "const":
        return None
    return graph.either(graph.both(condition, then), graph.both(graph.negation(condition), otherwise))


def _whitened(d: Draft, x: Node, where: Node, *by: Node) -> bool:
    return (
        d.attributes[0] is Level.BATCH
        and not by
        and x.level is Level.ROLLOUT
        and where.level < Level.ROLLOUT
        and sums_to_zero(d.graph, x)
    )


_COMPARED = tuple(sorted(COMPARISONS))
_REDUCED = tuple(sorted(REDUCTIONS))

RULES: tuple[Rule, ...] = (
    # Arithmetic
    Rule(
        "missing in, missing out",
        None,
        lambda d, *args: any(a.op == "missing" for a in args),
        lambda d, *args: next(a for a in args if a.op == "missing"),
        "the definition of every operator; the other operand is not evaluated",
        unasked=True,
    ),
    Rule(
        "--x = x",
        ("neg",),
        lambda d, x: x.op == "neg",
        lambda d, x: x.args[0],
        "missing where x is",
    ),
    Rule("0 + x = x", ("+",), lambda d, a, b: a.constant == 0, lambda d, a, b: b, "a missing x stays missing"),
    Rule("x + 0 = x", ("+", "-"), lambda d, a, b: b.constant == 0, lambda d, a, b: a, "a missing x stays missing"),
    Rule(
        "0 - x = -x",
        ("-",),
        lambda d, a, b: a.constant == 0,
        lambda d, a, b: d.graph.apply("neg", b),
        "a missing x stays missing",
    ),
    Rule("1 * x = x", ("*",), lambda d, a, b: a.constant == 1, lambda d, a, b: b, "a missing x stays missing"),
    Rule(
        "x * 1 = x / 1 = x ** 1 = x",
        ("*", "/", "**"),
        lambda d, a, b: b.constant == 1,
        lambda d, a, b: a,
        "a missing x stays missing",
    ),
    Rule(
        "0 * x = 0",
        ("*",),
        lambda d, a, b: a.constant == 0 and _lies(b),
        lambda d, a, b: a,
        "x is a number, neither missing nor infinite",
        drops=(1,),
    ),
    Rule(
        "x * 0 = 0",
        ("*",),
        lambda d, a, b: b.constant == 0 and _lies(a),
        lambda d, a, b: b,
        "x is a number, neither missing nor infinite",
        drops=(0,),
    ),
    Rule(
        "min(x, x) = max(x, x) = x",
        ("minimum", "maximum"),
        lambda d, a, b: a is b,
        lambda d, a, b: a,
        "missing where x is",
    ),
    Rule(
        "min(a, b) = a",
        ("minimum",),
        lambda d, a, b: a.domain.hi <= b.domain.lo and not b.domain.missing,
        lambda d, a, b: a,
        "no a is above any b, and b is never missing",
        drops=(1,),
    ),
    Rule(
        "min(a, b) = b",
        ("minimum",),
        lambda d, a, b: b.domain.hi <= a.domain.lo and not a.domain.missing,
        lambda d, a, b: b,
        "no b is above any a, and a is never missing",
        drops=(0,),
    ),
    Rule(
        "max(a, b) = a",
        ("maximum",),
        lambda d, a, b: a.domain.lo >= b.domain.hi and not b.domain.missing,
        lambda d, a, b: a,
        "no a is below any b, and b is never missing",
        drops=(1,),
    ),
    Rule(
        "max(a, b) = b",
        ("maximum",),
        lambda d, a, b: b.domain.lo >= a.domain.hi and not a.domain.missing,
        lambda d, a, b: b,
        "no b is below any a, and a is never missing",
        drops=(0,),
    ),
    Rule(
        "an operator of constants",
        None,
        _defined_constants,
        _constants,
        "by the operator's own exact rule, where its result is rational",
    ),
    # Comparisons: a missing operand makes them false
    Rule(
        "a missing operand",
        _COMPARED,
        lambda d, a, b: "missing" in (a.op, b.op),
        lambda d, a, b: d.graph.const(0, d.level),
        "no comparison with a missing value holds",
        unasked=True,
    ),
    Rule(
        "decided by domains",
        _COMPARED,
        lambda d, a, b: d.domain.constant is not None,
        lambda d, a, b: d.graph.const(d.domain.constant, d.level),
        "it holds for all values, and none is missing; or it holds for none",
        drops=(0, 1),
    ),
    # Logic: conditions are never missing. As in Python, `b` is evaluated only where `a` does not decide
    Rule("true and b = b", ("and",), lambda d, a, b: a.constant == 1, lambda d, a, b: b, "b decides"),
    Rule("false and b = false", ("and",), lambda d, a, b: a.constant == 0, lambda d, a, b: a, "b is never evaluated"),
    Rule("a and true = a", ("and",), lambda d, a, b: b.constant == 1, lambda d, a, b: a, "b adds nothing"),
    Rule(
        "a and false = false",
        ("and",),
        lambda d, a, b: b.constant == 0,
        lambda d, a, b: b,
        "for any a",
        drops=(0,),
    ),
    Rule("true or b = true", ("or",), lambda d, a, b: a.constant == 1, lambda d, a, b: a, "b is never evaluated"),
    Rule("false or b = b", ("or",), lambda d, a, b: a.constant == 0, lambda d, a, b: b, "b decides"),
    Rule("a or false = a", ("or",), lambda d, a, b: b.constant == 0, lambda d, a, b: a, "b adds nothing"),
    Rule(
        "a or true = true",
        ("or",),
        lambda d, a, b: b.constant == 1,
        lambda d, a, b: b,
        "for any a",
        drops=(0,),
    ),
    Rule("a and a = a or a = a", ("and", "or"), lambda d, a, b: a is b, lambda d, a, b: a, "conditions are 0 or 1"),
    Rule(
        "not of a constant",
        ("not",),
        lambda d, a: a.constant is not None,
        lambda d, a: d.graph.const(1 - a.constant, d.level),
        "1 for 0, and 0 for 1",
    ),
    Rule("not not a = a", ("not",), lambda d, a: a.op == "not", lambda d, a: a.args[0], "conditions are 0 or 1"),
    # Choices. `Graph.assume` has simplified the operands under the condition
    Rule(
        "a decided choice",
        ("if",),
        lambda d, condition, then, otherwise: condition.constant is not None,
        lambda d, condition, then, otherwise: _selected(d.graph, then if condition.constant else otherwise, condition),
        "the other branch is never evaluated",
    ),
    Rule(
        "a choice between equals",
        ("if",),
        lambda d, condition, then, otherwise: then is otherwise,
        lambda d, condition, then, otherwise: then,
        "for any condition",
        drops=(0,),
    ),
    Rule(
        "x if present(x) else missing = x",
        ("if",),
        lambda d, condition, then, otherwise: (
            condition.op == "present" and condition.args[0] is then and otherwise.op == "missing"
        ),
        lambda d, condition, then, otherwise: then,
        "missing where x is",
    ),
    Rule(
        "1 if condition else 0 = condition",
        ("if",),
        lambda d, condition, then, otherwise: then.constant == 1 and otherwise.constant == 0,
        lambda d, condition, then, otherwise: condition,
        "conditions are 0 or 1",
    ),
    Rule(
        "x is never missing",
        ("present",),
        lambda d, x: not x.domain.missing,
        lambda d, x: d.graph.const(1, d.level),
        "by its domain",
        unasked=True,
    ),
    Rule(
        "nothing is missing",
        ("present",),
        lambda d, x: x.op == "missing",
        lambda d, x: d.graph.const(0, d.level),
        "by definition",
    ),
    Rule(
        "present(a if c else b)",
        ("present",),
        lambda d, x: x.op == "if",
        _present_through_gate,
        "c and present(a) or not c and present(b); only where one of the two is constant, so that it is not longer",
    ),
    Rule(
        "present(f(a, b)) = present(a) and present(b)",
        ("present",),
        lambda d, x: isinstance(OPERATORS[x.op], Elementwise),
        lambda d, x: d.graph.all_of([d.graph.present(a) for a in x.args]),
        "missing in, missing out, and no other way",
        unasked=True,
    ),
    Rule(
        "coalesce(x, y) = x",
        ("coalesce",),
        lambda d, x, otherwise: not x.domain.missing,
        lambda d, x, otherwise: x,
        "x is never missing, so y is never evaluated",
    ),
    Rule(
        "coalesce(missing, y) = y",
        ("coalesce",),
        lambda d, x, otherwise: x.op == "missing",
        lambda d, x, otherwise: otherwise,
        "the first argument is missing",
    ),
    Rule("a sum of one", ("sum_components",), lambda d, *terms: len(terms) == 1, lambda d, x: x, "missing where x is"),
    # Reductions
    Rule(
        "a reduction to one value",
        _REDUCED,
        lambda d, x, where, *by: (
            not by and not x.domain.missing and where.constant == 1 and d.domain.constant is not None
        ),
        lambda d, x, where: d.graph.const(d.domain.constant, d.level),
        "every value takes part, and the domain of the result has one value",
        drops=(0,),
    ),
    Rule(
        "no spread of one value",
        tuple(sorted(GROUP_SPREADS)),
        lambda d, x, where, *by: x.domain.present().constant is not None,
        lambda d, x, where, *by: d.graph.const(0, d.level),
        "equal values, or none, have spread 0",
        drops=(0, 1),
    ),
    Rule(
        "the batch's mean of what sums to zero",
        ("mean",),
        _whitened,
        lambda d, x, where: d.graph.const(0, d.level),
        "it is zero over every group by construction, and `where` selects whole groups; if it selects none, the mean is"
        " missing, but then nothing is normalised",
        unasked=True,
    ),
)


_OF: dict[str, tuple[Rule, ...]] = {}


def rules_of(op: str) -> Sequence[Rule]:
    """The rules that may apply to an operator, in their order."""
    if op not in _OF:
        declared = OPERATORS[op]
        number = isinstance(declared, Elementwise) and not declared.boolean
        _OF[op] = tuple(r for r in RULES if (number if r.operators is None else op in r.operators))
    return _OF[op]


def simplified(draft: Draft) -> Node | None:
    """A simpler node with the value of the draft; None if no rule applies."""
    for rule in rules_of(draft.op):
        result = tried(rule, draft)
        if result is not None:
            return result
    return None


def tried(rule: Rule, draft: Draft) -> Node | None:
    """The result of one rule for a draft; None where it does not apply."""
    graph, args = draft.graph, draft.args
    if not rule.when(draft, *args):
        return None
    if draft.asked and rule.drops and graph.fails(*(args[i] for i in rule.drops)):
        return None  # a run must still raise where it is undefined
    result = rule.result(draft, *args)
    return None if result is None else graph.spread(result, draft.level)
