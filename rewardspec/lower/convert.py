"""Values as numbers and as conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rewardspec.ir.graph import Node
from rewardspec.lower.context import Context
from rewardspec.lower.values import Axis, Bundle, Scope, Truth, Value
from rewardspec.ops.operators import ELEMENTWISE
from rewardspec.syntax.tree import Expr
from rewardspec.text.diagnostics import shorten
from rewardspec.text.source import Span

OF_IDS = "an id can stand after `by=`, be compared with another id by `==` or `!=`, and be counted: `count(...)`"


def number(ctx: Context, expr: Expr, scope: Scope) -> Node:
    """An expression as one number; a bundle is an error."""
    value = ctx.value(expr, scope)
    refuse_bundle(ctx, value, expr, "expected one value, not one for each component", "sum")
    return as_number(ctx, value, expr.span)


def refuse_nominal(ctx: Context, node: Node, expr: Expr) -> None:
    """Report a name or an id where a number is needed."""
    if node.domain.nominal:
        kind = "ids" if node.domain.ids else "names"
        message = f"the values of `{shorten(expr.span.text)}` are {kind}, not numbers"
        if node.domain.ids and ctx.site is not None:  # the text is the prelude's
            message = f"`{shorten(ctx.site.text)}` needs numbers, not ids"
        ctx.fail("not-a-number", message, expr.span, help=_what_it_can(node))


def _what_it_can(node: Node) -> str | None:
    """The help where a name or an id cannot stand."""
    if node.domain.ids:
        return OF_IDS
    return f"compare it: `... == {node.domain.symbols[0]}`" if node.domain.symbols else None


def as_condition(ctx: Context, expr: Expr, scope: Scope) -> Node:
    """Whether an expression is true: a node that is never missing."""
    value = ctx.value(expr, scope)
    refuse_bundle(ctx, value, expr, "expected one condition, not one for each component", "all")
    return as_truth(ctx, value, expr.span).holds


def refuse_bundle(ctx: Context, value: Value, expr: Expr, message: str, reduction: str) -> None:
    """Report a bundle where one value is needed; `reduction` is the function that would make one of it."""
    if isinstance(value, Bundle):
        help = f"did you mean `{reduction}({shorten(expr.span.text)}, over=components)`?"
        ctx.fail("bundle-left-over", message, expr.span, help=help)


def as_number(ctx: Context, value: Value, span: Span) -> Node:
    match value:
        case Truth(holds, fails):
            graph = ctx.graph
            return graph.if_(holds, graph.const(1), graph.if_(fails, graph.const(0), graph.missing()))
        case Axis(name):
            ctx.fail("not-a-value", f"`{name}` is an axis, not a value", span, help=f"write `over={name}`")
        case Node():
            return value
    raise AssertionError(f"no number for {value!r}")


def as_truth(ctx: Context, value: Value, span: Span) -> Truth:
    if isinstance(value, Truth):
        return value
    node = as_number(ctx, value, span)
    if not node.domain.condition and node.op != "missing":
        known = f"can be {node.domain}"
        help = _what_it_can(node) or "compare it: `... > 0`"
        ctx.fail("not-a-condition", "expected a condition (0 or 1)", span, note=known, help=help)
    if node.boolean and not node.domain.missing:
        return Truth(node, ctx.graph.negation(node))
    if node.constant is not None:
        return Truth(node, ctx.graph.negation(node))
    zero, one = ctx.graph.const(0), ctx.graph.const(1)
    return Truth(ctx.graph.compare("==", node, one), ctx.graph.compare("==", node, zero))


def each(make: Callable[..., Value], *values: Value) -> Value:
    """`make(*values)`, component by component if any of them is a bundle."""
    size = next((len(v.values) for v in values if isinstance(v, Bundle)), None)
    if size is None:
        return make(*values)
    rows = [v.values if isinstance(v, Bundle) else (v,) * size for v in values]
    return Bundle(tuple(make(*row) for row in zip(*rows, strict=True)))


def numbers(ctx: Context, make: Callable[..., Value], values: Sequence[Value], exprs: Sequence[Expr]) -> Value:
    """`make(*values)` with the values as numbers; names and ids are errors."""

    def checked(*row: Value) -> Value:
        nodes = [as_number(ctx, v, e.span) for v, e in zip(row, exprs, strict=True)]
        for node, e in zip(nodes, exprs, strict=True):
            refuse_nominal(ctx, node, e)
        return make(*nodes)

    return each(checked, *values)


def simple(ctx: Context, truth: Truth) -> Value:
    """The condition as a node if it is never missing: one of `holds` and `fails` is always true."""
    if truth.fails is ctx.graph.negation(truth.holds):
        return truth.holds
    known = ctx.graph.either(truth.holds, truth.fails)
    return truth.holds if known.constant == 1 else truth


def comparison_of(ctx: Context, operator: str, a: Node, b: Node) -> Value:
    """The comparison of two nodes; missing if one of them is missing."""
    graph = ctx.graph
    holds = graph.compare(operator, a, b)
    if not a.domain.missing and not b.domain.missing:
        return holds
    return Truth(holds, graph.compare(ELEMENTWISE[operator].opposite, a, b))
