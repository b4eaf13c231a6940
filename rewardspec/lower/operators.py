"""Operators, conditions and choices to nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from rewardspec.ir.graph import Node
from rewardspec.lower.context import Context
from rewardspec.lower.convert import OF_IDS, as_number, as_truth, comparison_of, each, numbers, simple
from rewardspec.lower.unknown import knows
from rewardspec.lower.values import Scope, Truth, Value
from rewardspec.ops.domain import finest, interval
from rewardspec.ops.operators import ELEMENTWISE
from rewardspec.syntax.foreign import NAMES
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Label, did_you_mean, shorten
from rewardspec.text.numbers import LARGEST


def number_value(ctx: Context, expr: Number, scope: Scope) -> Value:
    """A number as a constant."""
    if isinstance(expr.value, float):
        ctx.fail("infinite-value", "infinity is not a value", expr.span, help=NAMES["inf"])
    return ctx.graph.const(expr.value)


def operation(ctx: Context, expr: Operation, scope: Scope) -> Value:
    """An operator applied to its operands."""
    match expr.operator:
        case "and" | "or" | "not":
            return logic(ctx, expr, scope)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return comparison(ctx, expr, scope)
    return arithmetic(ctx, expr, scope)


def arithmetic(ctx: Context, expr: Operation, scope: Scope) -> Value:
    """`+ - * / **` and negation."""
    values = ctx.values(expr.operands, scope)
    name = expr.operator
    ctx.graph.here = ctx.site or expr.span

    def make(*nodes: Node) -> Node:
        result = nodes[0] if len(nodes) > 1 else elementwise(ctx, name, nodes, expr)
        for node in nodes[1:]:
            result = elementwise(ctx, name, (result, node), expr)
        return result

    return numbers(ctx, make, values, expr.operands)


def elementwise(ctx: Context, name: str, nodes: tuple[Node, ...], expr: Operation | Call) -> Node:
    """One operator applied to its operands; an error if it is undefined for all of their values."""
    op = ELEMENTWISE[name]
    domains = [node.domain for node in nodes]
    never = name == "/" and nodes[1].constant == 0
    if never or (op.undefined and all(n.constant is not None for n in nodes) and op.undefined.possible(*domains)):
        if ctx.site is not None:  # the prelude guards it with a condition
            return ctx.graph.spread(ctx.graph.missing(), finest(n.level for n in nodes))
        return undefined(ctx, name, nodes, expr)
    result = ctx.graph.apply(name, *nodes)
    if result.constant is not None and abs(result.constant) > LARGEST:
        ctx.fail("too-large", "the constant is outside the range of floating point", expr.span)
    return result


def undefined(ctx: Context, name: str, nodes: tuple[Node, ...], expr: Operation | Call) -> Node:
    """A node that is undefined for every rollout: an error at once for literal numbers, else only if it is read.

    `1 / limit if limit > 0 else 0` is fine if `limit` is 0.
    """
    message = "division by 0" if name == "/" else f"`{name}` is undefined here"
    written = expr.operands if isinstance(expr, Operation) else expr.arguments
    if name == "/":
        written = written[1:]
    if all(_of_numbers(operand) for operand in written):
        ctx.fail("undefined", message, expr.span)
    level = finest(n.level for n in nodes)
    node = ctx.graph.node("undefined", (), (len(ctx.never),), level, interval(-inf, inf, missing=True))
    ctx.never.append((node, message, expr.span))
    return node


def logic(ctx: Context, expr: Operation, scope: Scope) -> Value:
    """`and`, `or`, `not`, with missing as the third truth value."""
    values = ctx.values(expr.operands, scope)
    graph = ctx.graph
    graph.here = ctx.site or expr.span

    def make(*row: Value) -> Value:
        truths = [as_truth(ctx, v, e.span) for v, e in zip(row, expr.operands, strict=True)]
        holds, fails = [t.holds for t in truths], [t.fails for t in truths]
        if expr.operator == "not":
            return simple(ctx, Truth(fails[0], holds[0]))
        if expr.operator == "and":
            return simple(ctx, Truth(graph.all_of(holds), graph.any_of(fails)))
        return simple(ctx, Truth(graph.any_of(holds), graph.all_of(fails)))

    return each(make, *values)


def comparison(ctx: Context, expr: Operation, scope: Scope) -> Value:
    """`<`, `==` and the others, of numbers or of names."""
    left, right = expr.operands
    symbolic = symbol_comparison(ctx, expr, scope)
    if symbolic is not None:
        return symbolic
    values = ctx.values((left, right), scope)
    ctx.graph.here = ctx.site or expr.span
    if any(is_id(value) for value in values):
        return id_comparison(ctx, expr, values)
    return numbers(ctx, lambda a, b: comparison_of(ctx, expr.operator, a, b), values, (left, right))


def symbol_comparison(ctx: Context, expr: Operation, scope: Scope) -> Value | None:
    """`task == math`, where `math` is one of the values of `task`; None for a comparison without symbols."""
    for subject, other in (expr.operands, expr.operands[::-1]):
        if not isinstance(subject, Name) or not (
            subject.text in ctx.declared.columns or subject.text in scope.parameters
        ):
            continue
        node = ctx.value(subject, scope)
        if is_id(node) and isinstance(other, Name) and not (knows(ctx, other.text) or other.text in scope.parameters):
            message = f"`{subject.text}` is an id, so it cannot be compared with a name"
            ctx.fail("not-an-id", message, other.span, help=OF_IDS)
        if not isinstance(node, Node) or not node.domain.symbols:
            continue
        names = node.domain.symbols
        if expr.operator not in ("==", "!="):
            ctx.fail(
                "not-a-number",
                f"the values of `{subject.text}` are names, which have no order",
                expr.span,
                help="compare it with `==` or `!=`",
            )
        if not isinstance(other, Name):
            ctx.fail(
                "not-a-name",
                f"`{subject.text}` is a name, one of {node.domain}",
                other.span,
                help=f"did you mean `{subject.text} == {names[0]}`?",
            )
        if other.text not in names:
            known = (
                ctx.value(other, scope) if knows(ctx, other.text) and other.text not in ctx.declared.damaged else None
            )
            if isinstance(known, Node) and known.domain.symbols == names:
                return comparison_of(ctx, expr.operator, node, known)
            if known is not None and is_id(known):
                return id_comparison(ctx, expr, (node, known) if subject is expr.operands[0] else (known, node))
            ctx.fail(
                "unknown-symbol",
                f"`{subject.text}` is never `{shorten(other.text)}`",
                other.span,
                labels=(Label(ctx.declared.columns[subject.text].domain_span, "its values"),)
                if subject.text in ctx.declared.columns
                else (),
                help=did_you_mean(other.text, names),
            )
        return comparison_of(ctx, expr.operator, node, ctx.graph.const(names.index(other.text)))
    return None


def is_id(value: Value) -> bool:
    """Whether the values are ids."""
    return isinstance(value, Node) and value.domain.ids


def id_comparison(ctx: Context, expr: Operation, values: Sequence[Value]) -> Value:
    """Whether two ids are equal, or whether they differ; of an id and something else an error."""
    if expr.operator not in ("==", "!="):
        ctx.fail("not-a-number", "ids have no order", expr.span, help=OF_IDS)
    for value, operand, other in zip(values, expr.operands, expr.operands[::-1], strict=True):
        if isinstance(value, Node) and value.op == "missing":
            text = shorten(other.span.text)
            asks = f"`{'not ' if expr.operator == '==' else ''}present({text})`"
            ctx.fail("not-an-id", "nothing is equal to a missing value", operand.span, help=f"write {asks}")
        if not is_id(value):
            text, id_text = shorten(operand.span.text), shorten(other.span.text)
            message = f"`{id_text}` is an id, and `{text}` is not"
            ctx.fail("not-an-id", message, operand.span, help=OF_IDS)
    left, right = values
    assert isinstance(left, Node) and isinstance(right, Node)
    return comparison_of(ctx, expr.operator, left, right)


def choice(ctx: Context, expr: If, scope: Scope) -> Value:
    """`a if condition else b`; a missing condition selects `b`."""
    parts = (expr.condition, expr.then, expr.otherwise)
    condition, then, otherwise = ctx.values(parts, scope)
    ctx.graph.here = ctx.site or expr.span

    def make(c: Value, a: Value, b: Value) -> Node:
        holds = as_truth(ctx, c, expr.condition.span).holds
        then, otherwise = as_number(ctx, a, expr.then.span), as_number(ctx, b, expr.otherwise.span)
        if then.domain.symbols or otherwise.domain.symbols:
            ctx.fail("not-a-number", "`if` needs numbers, not names", expr.span)
        if then.domain.ids or otherwise.domain.ids:
            ctx.fail("not-a-number", "`if` needs numbers, not ids", expr.span, help=OF_IDS)
        return ctx.graph.if_(holds, then, otherwise)

    return each(make, condition, then, otherwise)


def _of_numbers(expr: Expr) -> bool:
    """Whether an expression contains only literal numbers and operators."""
    if isinstance(expr, Operation):
        return all(map(_of_numbers, expr.operands))
    return isinstance(expr, Number)
