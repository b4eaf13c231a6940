"""Operators, conditions and choices to nodes."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rewardspec.ir.graph import Node, TooLarge
from rewardspec.lower.names import Names
from rewardspec.lower.values import Axis, Bundle, Scope, Skip, Truth, Value
from rewardspec.ops.domain import interval
from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.syntax.foreign import NAMES
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Label, did_you_mean, shorten
from rewardspec.text.numbers import LARGEST
from rewardspec.text.source import Span

DEEPEST = 120  # of expressions and the definitions they use together; Python's own stack allows more
MOST_STEPS = 50_000


class Expressions(Names):
    """Everything but calls."""

    def value(self, expr: Expr, scope: Scope) -> Value:
        self.steps += 1
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                self.fail("too-deep", f"definitions and expressions nested more than {DEEPEST} deep", expr.span)
            if self.steps > MOST_STEPS:
                raise TooLarge
            self.graph.here = self.site or expr.span
            match expr:
                case Number(value=value):
                    if isinstance(value, float):
                        self.fail("infinite-value", "infinity cannot be computed with", expr.span, help=NAMES["inf"])
                    return self.graph.const(value)
                case Name():
                    return self.name(expr, scope)
                case Call():
                    return self.call(expr, scope)
                case Operation(operator="and" | "or" | "not"):
                    return self.logic(expr, scope)
                case Operation(operator="<" | "<=" | ">" | ">=" | "==" | "!="):
                    return self.comparison(expr, scope)
                case Operation():
                    return self.arithmetic(expr, scope)
                case If():
                    return self.choice(expr, scope)
            raise AssertionError(f"no meaning for {expr!r}")
        finally:
            self.depth -= 1

    def values(self, exprs: tuple[Expr, ...], scope: Scope) -> list[Value]:
        """The values of several expressions; all of them are read before the first error counts."""
        found, failed = [], False
        for expr in exprs:
            try:
                found.append(self.value(expr, scope))
            except Skip:
                failed = True
        if failed:
            raise Skip
        return found

    def number(self, expr: Expr, scope: Scope) -> Node:
        value = self.value(expr, scope)
        if isinstance(value, Bundle):
            self.fail(
                "bundle-left-over",
                "this is one value for each component, and one value is wanted",
                expr.span,
                help=f"did you mean `sum({shorten(expr.span.text)}, over=components)`?",
            )
        return self.as_number(value, expr.span)

    def condition(self, expr: Expr, scope: Scope) -> Node:
        """Whether an expression holds: a node that is never missing."""
        value = self.value(expr, scope)
        if isinstance(value, Bundle):
            self.fail(
                "bundle-left-over",
                "this is one condition for each component, and one is wanted",
                expr.span,
                help=f"did you mean `all({shorten(expr.span.text)}, over=components)`?",
            )
        return self.truth(value, expr.span).holds

    def as_number(self, value: Value, span: Span) -> Node:
        match value:
            case Truth(holds, fails):
                graph = self.graph
                return graph.if_(holds, graph.const(1), graph.if_(fails, graph.const(0), graph.missing()))
            case Axis(name):
                self.fail(
                    "not-a-value", f"`{name}` names an axis, not a value", span, help="an axis stands after `over=`"
                )
            case Node():
                return value
        raise AssertionError(f"no number for {value!r}")

    def truth(self, value: Value, span: Span) -> Truth:
        if isinstance(value, Truth):
            return value
        node = self.as_number(value, span)
        if not node.domain.condition and node.op != "missing":
            known = f"it can be {node.domain}"
            help = "compare it: `... > 0`"
            if node.domain.symbols:
                help = f"compare it: `... == {node.domain.symbols[0]}`"
            self.fail("not-a-condition", "a condition is wanted here, which is 0 or 1", span, note=known, help=help)
        if node.boolean and not node.domain.missing:
            return Truth(node, self.graph.negation(node))
        if node.constant is not None:
            return Truth(node, self.graph.negation(node))
        zero, one = self.graph.const(0), self.graph.const(1)
        return Truth(self.graph.compare("==", node, one), self.graph.compare("==", node, zero))

    def each(self, make: Callable[..., Value], *values: Value) -> Value:
        """`make` of the values, component by component where any of them is a bundle."""
        size = next((len(v.values) for v in values if isinstance(v, Bundle)), None)
        if size is None:
            return make(*values)
        rows = [v.values if isinstance(v, Bundle) else (v,) * size for v in values]
        return Bundle(tuple(make(*row) for row in zip(*rows, strict=True)))

    def numbers(self, make: Callable[..., Node], values: list[Value], exprs) -> Value:
        """`make` of the values as numbers; names (symbols) are refused."""

        def checked(*row: Value) -> Node:
            nodes = [self.as_number(v, e.span) for v, e in zip(row, exprs, strict=True)]
            for node, e in zip(nodes, exprs, strict=True):
                if node.domain.symbols:
                    self.fail(
                        "not-a-number",
                        f"`{shorten(e.span.text)}` holds names, which cannot be computed with",
                        e.span,
                        help=f"compare it: `... == {node.domain.symbols[0]}`",
                    )
            return make(*nodes)

        return self.each(checked, *values)

    def arithmetic(self, expr: Operation, scope: Scope) -> Value:
        values = self.values(expr.operands, scope)
        name = expr.operator
        self.graph.here = self.site or expr.span

        def make(*nodes: Node) -> Node:
            result = nodes[0] if len(nodes) > 1 else self.elementwise(name, nodes, expr)
            for node in nodes[1:]:
                result = self.elementwise(name, (result, node), expr)
            return result

        return self.numbers(make, values, expr.operands)

    def elementwise(self, name: str, nodes: tuple[Node, ...], expr: Expr) -> Node:
        """One operator, with an error where it can have no result for any value."""
        op = ELEMENTWISE[name]
        domains = [node.domain for node in nodes]
        never = name == "/" and nodes[1].constant == 0
        if never or (op.undefined and all(n.constant is not None for n in nodes) and op.undefined.possible(*domains)):
            if self.site is not None:  # in the prelude a condition stands before it
                return self.graph.spread(self.graph.missing(), max(n.level for n in nodes))
            return self.undefined(name, nodes, expr)
        result = self.graph.apply(name, *nodes)
        if result.constant is not None and abs(result.constant) > LARGEST:
            self.fail("too-large", "a constant beyond the range of floating point", expr.span)
        return result

    def undefined(self, name: str, nodes: tuple[Node, ...], expr: Expr) -> Node:
        """What has no value for any rollout: an error if it was written so, else if something asks for it in the end.

        `1 / limit if limit > 0 else 0` is fine where `limit` is 0.
        """
        message = "division by 0" if name == "/" else f"`{name}` has no value here"
        written = expr.operands[1:] if name == "/" else getattr(expr, "operands", None) or expr.arguments
        if all(_of_numbers(operand) for operand in written):
            self.fail("undefined", message, expr.span)
        level = max(n.level for n in nodes)
        node = self.graph.node("undefined", (), (len(self.never),), level, interval(-inf, inf, missing=True))
        self.never.append((node, message, expr.span))
        return node

    def logic(self, expr: Operation, scope: Scope) -> Value:
        values = self.values(expr.operands, scope)
        graph = self.graph
        graph.here = self.site or expr.span

        def make(*row: Value) -> Value:
            truths = [self.truth(v, e.span) for v, e in zip(row, expr.operands, strict=True)]
            holds, fails = [t.holds for t in truths], [t.fails for t in truths]
            if expr.operator == "not":
                return self.simple(Truth(fails[0], holds[0]))
            if expr.operator == "and":
                return self.simple(Truth(graph.all_of(holds), graph.any_of(fails)))
            return self.simple(Truth(graph.any_of(holds), graph.all_of(fails)))

        certain = self.each(make, *values)
        return certain

    def simple(self, truth: Truth) -> Value:
        """A node where the condition is never missing: one of `holds`, `fails` always is the case."""
        if truth.fails is self.graph.negation(truth.holds):
            return truth.holds
        known = self.graph.either(truth.holds, truth.fails)
        return truth.holds if known.constant == 1 else truth

    def comparison(self, expr: Operation, scope: Scope) -> Value:
        left, right = expr.operands
        symbolic = self.symbol_comparison(expr, scope)
        if symbolic is not None:
            return symbolic
        values = self.values((left, right), scope)
        self.graph.here = self.site or expr.span
        return self.numbers(lambda a, b: self.compared(expr.operator, a, b), values, (left, right))

    def compared(self, operator: str, a: Node, b: Node) -> Value:
        graph = self.graph
        holds = graph.compare(operator, a, b)
        if not a.domain.missing and not b.domain.missing:
            return holds
        return Truth(holds, graph.compare(ELEMENTWISE[operator].opposite, a, b))

    def symbol_comparison(self, expr: Operation, scope: Scope) -> Value | None:
        """`task == math`, where `math` is one of the names that `task` can be."""
        for subject, other in (expr.operands, expr.operands[::-1]):
            if not isinstance(subject, Name) or not (
                subject.text in self.declared.columns or subject.text in scope.parameters
            ):
                continue
            node = self.value(subject, scope)
            if not isinstance(node, Node) or not node.domain.symbols:
                continue
            names = node.domain.symbols
            if expr.operator not in ("==", "!="):
                self.fail(
                    "not-a-number",
                    f"`{subject.text}` holds names, which have no order",
                    expr.span,
                    help="compare it with `==` or `!=`",
                )
            if not isinstance(other, Name):
                self.fail(
                    "not-a-name",
                    f"`{subject.text}` is a name: {node.domain}",
                    other.span,
                    help=f"did you mean `{subject.text} == {names[0]}`?",
                )
            if other.text not in names:
                known = (
                    self.value(other, scope)
                    if self.knows(other.text) and other.text not in self.declared.damaged
                    else None
                )
                if isinstance(known, Node) and known.domain.symbols == names:
                    return self.compared(expr.operator, node, known)
                self.fail(
                    "unknown-symbol",
                    f"`{subject.text}` is never `{shorten(other.text)}`",
                    other.span,
                    labels=(Label(self.declared.columns[subject.text].domain_span, "what it can be"),)
                    if subject.text in self.declared.columns
                    else (),
                    help=did_you_mean(other.text, names),
                )
            return self.compared(expr.operator, node, self.graph.const(names.index(other.text)))
        return None

    def choice(self, expr: If, scope: Scope) -> Value:
        parts = (expr.condition, expr.then, expr.otherwise)
        condition, then, otherwise = self.values(parts, scope)
        self.graph.here = self.site or expr.span

        def make(c: Value, a: Value, b: Value) -> Node:
            holds = self.truth(c, expr.condition.span).holds
            then, otherwise = self.as_number(a, expr.then.span), self.as_number(b, expr.otherwise.span)
            if then.domain.symbols or otherwise.domain.symbols:
                self.fail("not-a-number", "names cannot be chosen between", expr.span)
            return self.graph.if_(holds, then, otherwise)

        return self.each(make, condition, then, otherwise)


def _of_numbers(expr: Expr) -> bool:
    """Whether an expression is made of numbers alone."""
    if isinstance(expr, Operation):
        return all(map(_of_numbers, expr.operands))
    return isinstance(expr, Number)
