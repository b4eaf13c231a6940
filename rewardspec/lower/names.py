"""Names to values: parameters, definitions, signals, components, and the language's own names."""

from __future__ import annotations

from fractions import Fraction
from math import inf

from rewardspec.ir.graph import Node
from rewardspec.language.declarations import AXES, GIVEN, Definition
from rewardspec.lower.components import shaped_value, weight_value
from rewardspec.lower.context import Context
from rewardspec.lower.lists import position
from rewardspec.lower.outcome import right_rollouts
from rewardspec.lower.unknown import unknown
from rewardspec.lower.values import Axis, Bundle, Scope, Skip, Value
from rewardspec.ops.domain import Level, finite, interval
from rewardspec.syntax.tree import Expr, Name

PI = Fraction(3141592653589793, 10**15)


def name_value(ctx: Context, expr: Name, scope: Scope) -> Value:
    """The value of a name, looked up in this order: parameters, axes, the spec, the prelude, the language."""
    name = expr.text
    if name in scope.parameters:
        return scope.parameters[name].value
    if name in AXES or (name == "rollout" and not _declares(ctx, name, scope)):
        return Axis(name)
    if not scope.prelude:
        if name in ctx.declared.damaged:
            raise Skip
        if name in ctx.declared.values:
            return definition_value(ctx, name, scope, expr)
        if name in ctx.declared.components:
            return shaped_value(ctx, name)
        if name in ctx.declared.columns:
            return signal(ctx, name)
        if name in ctx.declared.states:
            return state_before(ctx, name)
    if name in ctx.prelude.values:
        return definition_value(ctx, name, ctx.own, expr)
    if scope.prelude and name in ctx.prelude.columns:  # a column of the dialect
        return signal(ctx, name)
    if scope.prelude and name == "outcome":  # the default argument of the prelude's guarantees
        if ctx.declared.outcome is None and "outcome" not in ctx.declared.place:
            ctx.fail(
                "no-outcome",
                "the spec has no `outcome`",
                expr.span,
                help="declare `outcome: correct >= 1`, or pass the condition as an argument",
            )
        return right_rollouts(ctx)
    if name == "advantage" and ctx.advantage is not None:
        return ctx.advantage
    if name == "copies":
        if ctx.copies is None:
            ctx.fail(
                "too-early",
                "`copies` is not defined here",
                expr.span,
                help="use `copies` in `advantage:` or `guarantees:` only",
            )
        return ctx.copies
    if name in GIVEN:
        return given_value(ctx, name)
    if name == "position" and ctx.declared.lists:
        return position(ctx, None, expr.span)
    unknown(ctx, expr, scope)
    raise Skip


def _declares(ctx: Context, name: str, scope: Scope) -> bool:
    """Whether the spec has a value of this name, which hides the axis `rollout`."""
    declared = ctx.declared
    return not scope.prelude and any(
        name in names for names in (declared.values, declared.components, declared.columns, declared.damaged)
    )


def definition_value(ctx: Context, name: str, scope: Scope, expr: Name | None) -> Value:
    """The value of a definition without parameters."""
    found = (ctx.prelude if scope.prelude else ctx.declared).values[name]
    if found.body is None:
        raise Skip

    def make() -> Value:
        value = inlined(ctx, found, Scope(scope.prelude), expr)
        for node in [value] if isinstance(value, Node) else []:
            ctx.graph.names.setdefault(node, name)
        return value

    return ctx.once(("definition", name, scope.prelude), (expr or found.signature).span, make)


def inlined(ctx: Context, definition: Definition, scope: Scope, site: Expr | None) -> Value:
    """The value of a definition's body, inlined at `site`."""
    outer = ctx.site
    if definition.prelude and ctx.site is None and site is not None:
        ctx.site = site.span
    if definition.body is None:
        raise Skip  # it is wrong: reported already
    try:
        return ctx.value(definition.body, scope)
    finally:
        ctx.site = outer


def state_before(ctx: Context, name: str) -> Node:
    """The value of a state before the batch: read as a column of its level that is never missing."""
    column = ctx.declared.states[name].column
    node = ctx.graph.column(name, column.level, column.domain)
    ctx.graph.names.setdefault(node, name)
    return node


def signal(ctx: Context, name: str) -> Node:
    """A column as measured; its missing values follow the column's policy."""
    column = ctx.declared.columns[name]
    domain = column.domain.or_missing(column.missing == "ignore" or column.gated)
    node = ctx.graph.column(name, column.level, domain)
    ctx.graph.spans.setdefault(node, column.span)
    return node


def given_value(ctx: Context, name: str) -> Value:
    """The value of one of the language's own names: `step`, `rewards`, `eps`, ..."""
    graph, one = ctx.graph, Fraction(1)
    if name in ctx.declared.given:
        return graph.const(ctx.declared.given[name])
    match name:
        case "rewards" | "weights" if not ctx.declared.components:
            raise Skip  # no components: reported already
        case "rewards":
            return Bundle(tuple(shaped_value(ctx, n) for n in ctx.declared.components))
        case "weights":
            return Bundle(tuple(weight_value(ctx, n) for n in ctx.declared.components))
        case "missing":
            return graph.missing()
        case "step":
            return graph.given(name, interval(Fraction(0), inf))
        case "progress":
            return graph.given(name, interval(Fraction(0), one))
        case "total_steps" | "batch_size":
            return graph.given(name, interval(one, inf))
        case "group_size":
            return graph.given(name, interval(one, inf), Level.GROUP)
        case "pi":
            return graph.given(name, interval(PI, PI + Fraction(1, 10**15)))
        case "eps":
            eps = ctx.declared.eps
            return graph.given(name, finite([eps])) if eps else graph.const(0)
    raise AssertionError(f"no value for `{name}`")
