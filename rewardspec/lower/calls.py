"""Calls: definitions inlined, and the language's own functions."""

from __future__ import annotations

from rewardspec.ir.graph import Node
from rewardspec.language.declarations import AXES, Definition
from rewardspec.lower.context import Context
from rewardspec.lower.convert import as_number, each, numbers
from rewardspec.lower.lists import position_of, scan
from rewardspec.lower.names import inlined, signal
from rewardspec.lower.operators import elementwise
from rewardspec.lower.reductions import check_axis, reduction
from rewardspec.lower.unknown import function_named, names_in, unknown_function
from rewardspec.lower.values import Bound, Bundle, Scope, Skip, Value, fold
from rewardspec.ops.functions import FUNCTIONS, Function
from rewardspec.ops.operators import ELEMENTWISE, SCANS
from rewardspec.syntax.foreign import ARGUMENTS, help_for
from rewardspec.syntax.tree import Call, Expr, Name
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.source import Span


def call_value(ctx: Context, expr: Call, scope: Scope) -> Value:
    """The value of a call to a definition or a built-in function."""
    definition = function_named(ctx, expr.function.text, scope)
    if definition is not None:
        return inline_call(ctx, expr, definition, scope)
    if expr.function.text not in FUNCTIONS:
        unknown_function(ctx, expr.function, scope)
        for argument in (*expr.arguments, *(value for _, value in expr.keywords)):
            names_in(ctx, argument, frozenset(scope.parameters), scope)
        raise Skip
    check_arguments(ctx, expr, FUNCTIONS[expr.function.text])
    return builtin(ctx, expr, scope)


def inline_call(ctx: Context, expr: Call, definition: Definition, scope: Scope) -> Value:
    """The value of a call to a definition: its body, inlined."""
    if definition.body is None:
        raise Skip
    signature, wanted = definition.signature, definition.signature.parameters or ()
    given = arguments_by_name(ctx, expr, [name for name, _ in wanted], signature.span)
    home = Scope(definition.prelude)
    parameters: dict[str, Bound] = {}
    failed = False
    for name, default in wanted:
        argument, where = (given[name], scope) if name in given else (default, home)
        if argument is None:
            ctx.fail(
                "missing-argument",
                f"`{definition.name}` needs `{name}`",
                expr.span,
                help=f"write `{signature.span.text}`",
            )
        outer = ctx.site
        if definition.prelude and name not in given:
            ctx.site = ctx.site or expr.span
        try:
            if isinstance(default, Name) and default.text in AXES:
                check_axis(ctx, argument, where)
            parameters[name] = Bound(ctx.value(argument, where), argument, where)
        except Skip:
            failed = True
        finally:
            ctx.site = outer
    if failed:
        raise Skip
    key = (
        "call",
        definition.name,
        definition.prelude,
        tuple((b.value, b.expr if isinstance(b.expr, Name) else None) for b in parameters.values()),
    )
    return ctx.once(key, expr.span, lambda: inlined(ctx, definition, Scope(definition.prelude, parameters), expr))


def arguments_by_name(ctx: Context, expr: Call, names: list[str], signature: Span) -> dict[str, Expr]:
    """Parameter name to argument, for the arguments that the call gives."""
    if len(expr.arguments) > len(names):
        extra = expr.arguments[len(names)]
        ctx.fail(
            "too-many-arguments",
            f"`{expr.function.text}` takes {len(names)} argument{'s' * (len(names) != 1)}",
            extra.span,
            help=f"write `{signature.text}`",
        )
    given = dict(zip(names, expr.arguments, strict=False))
    for name, value in expr.keywords:
        if name.text not in names:
            ctx.fail(
                "unknown-argument",
                f"`{expr.function.text}` has no argument `{shorten(name.text)}`",
                name.span,
                help=help_for(name.text, names, ARGUMENTS, f"write `{signature.text}`"),
            )
        if name.text in given:
            ctx.fail("duplicate-argument", f"`{name.text}` is given twice", name.span, help="keep one of them")
        given[name.text] = value
    return given


def check_arguments(ctx: Context, expr: Call, function: Function) -> None:
    """Report unknown, duplicate, missing and extra arguments of a built-in function."""
    name, count = expr.function.text, len(expr.arguments)
    shape = f"write `{function.signature(name)}`"
    seen = {*function.parameters[function.required : count]}  # optional ones can be given by name
    for key, _ in expr.keywords:
        if key.text not in function.keywords and key.text not in function.parameters[function.required :]:
            ctx.fail(
                "unknown-argument",
                f"`{name}` has no argument `{shorten(key.text)}`",
                key.span,
                help=help_for(key.text, function.keywords, ARGUMENTS, shape),
            )
        if key.text in seen:
            ctx.fail("duplicate-argument", f"`{key.text}` is given twice", key.span, help="keep one of them")
        seen.add(key.text)
    if count < function.required:
        ctx.fail(
            "missing-argument",
            f"`{name}` needs {'an argument' if function.required == 1 else f'{function.required} arguments'}",
            expr.span,
            help=shape,
        )
    if count > len(function.parameters) and not function.rest:
        ctx.fail(
            "too-many-arguments",
            f"`{name}` takes {len(function.parameters)} argument{'s' * (len(function.parameters) != 1)}",
            expr.arguments[len(function.parameters)].span,
            help=shape,
        )


def builtin(ctx: Context, expr: Call, scope: Scope) -> Value:
    """The value of a call to a built-in function."""
    name, arguments = expr.function.text, expr.arguments
    if name == "raw":
        return raw(ctx, expr, scope)
    if name == "position":
        return position_of(ctx, expr)
    if name in SCANS:
        return scan(ctx, expr, scope)
    graph = ctx.graph
    if name in ("min", "max") and len(arguments) > 1:
        if expr.keywords:
            ctx.fail(
                "unknown-argument",
                f"`{name}` of several values takes no `{expr.keywords[0][0].text}`",
                expr.keywords[0][0].span,
                help=f"to reduce, write `{name}` with one argument",
            )
        values = ctx.values(arguments, scope)
        graph.here = ctx.site or expr.span
        operator = "minimum" if name == "min" else "maximum"
        return numbers(ctx, lambda *nodes: fold(lambda a, b: graph.apply(operator, a, b), nodes), values, arguments)
    if name in FUNCTIONS and "over" in FUNCTIONS[name].keywords:
        return reduction(ctx, expr, scope)
    values = ctx.values(arguments, scope)
    graph.here = ctx.site or expr.span
    if name in ELEMENTWISE:
        return numbers(ctx, lambda *nodes: elementwise(ctx, name, nodes, expr), values, arguments)
    if name == "clip":
        return numbers(
            ctx, lambda x, low, high: graph.apply("minimum", graph.apply("maximum", x, low), high), values, arguments
        )
    if name == "coalesce":
        return numbers(ctx, lambda *nodes: fold(graph.coalesce, nodes), values, arguments)
    if name == "present":
        return each(lambda v: graph.present(as_number(ctx, v, expr.span)), *values)
    if name == "required":
        return each(lambda v: required(ctx, as_number(ctx, v, expr.span)), *values)
    raise AssertionError(f"`{name}` is declared but has no lowering")


def required(ctx: Context, x: Node) -> Node:
    if not x.domain.missing:
        return x
    return ctx.graph.node("required", (x,), (), x.level, x.domain.present())


def raw(ctx: Context, expr: Call, scope: Scope) -> Value:
    """`raw(x)`: the measured value of a signal or component."""
    (argument,) = expr.arguments
    while isinstance(argument, Name) and argument.text in scope.parameters:
        bound = scope.parameters[argument.text]
        argument, scope = bound.expr, bound.scope
    if isinstance(argument, Name) and argument.text == "rewards" and not all_measured(ctx):
        derived = next(n for n in ctx.declared.components if n not in ctx.declared.columns)
        ctx.fail("not-measured", f"`{derived}` is derived, so `raw(rewards)` is undefined", expr.span)
    if isinstance(argument, Name) and argument.text == "rewards":
        return Bundle(tuple(signal(ctx, name) for name in ctx.declared.components))
    if not isinstance(argument, Name):
        ctx.fail("not-a-name", "`raw` needs the name of a signal or component", argument.span, help="write `raw(name)`")
    name = argument.text
    if name in ctx.declared.damaged:
        raise Skip
    if name not in ctx.declared.columns:
        known = ctx.declared.columns
        if name in ctx.declared.components:
            ctx.fail(
                "not-measured",
                f"`{name}` is derived, so it has no raw value",
                argument.span,
                help=f"write `{name}` without `raw`",
            )
        if name in ctx.declared.states:
            message = f"`{name}` is a state, so it has no raw value"
            ctx.fail("not-measured", message, argument.span, help=f"write `{name}` without `raw`")
        ctx.fail(
            "unknown-name",
            f"no measured column is named `{shorten(name)}`",
            argument.span,
            help=did_you_mean(name, known),
        )
    return signal(ctx, name)


def all_measured(ctx: Context) -> bool:
    """Whether every component is measured, none derived."""
    return all(name in ctx.declared.columns for name in ctx.declared.components)
