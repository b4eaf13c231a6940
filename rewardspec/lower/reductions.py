"""Reductions: over a group, the batch, or the components."""

from __future__ import annotations

from fractions import Fraction

from rewardspec.ir.graph import Node
from rewardspec.language.declarations import AXES
from rewardspec.lower.context import Context
from rewardspec.lower.convert import as_number, as_truth, each, number, refuse_nominal
from rewardspec.lower.lists import refuse_unlike_levels
from rewardspec.lower.values import Axis, Bundle, Scope, Value, fold
from rewardspec.ops.domain import Level, finest
from rewardspec.ops.operators import REDUCTIONS, SPREADS
from rewardspec.syntax.tree import Call, Expr, Name
from rewardspec.text.diagnostics import did_you_mean, shorten


def reduction(ctx: Context, expr: Call, scope: Scope) -> Value:
    """The value of `mean(x, over=..., where=..., by=...)` and the other reductions."""
    name = expr.function.text
    keywords = {key.text: value for key, value in expr.keywords}
    exprs = (expr.arguments[0], *(keywords[k] for k in ("where", "by") if k in keywords))
    x, *rest = ctx.values(exprs, scope)
    where: Value = rest.pop(0) if "where" in keywords else ctx.graph.const(1)
    by: Value | None = rest.pop(0) if "by" in keywords else None
    axis = "group"
    if "over" in keywords:
        chosen = keywords["over"]
        check_axis(ctx, chosen, scope)
        over = ctx.value(chosen, scope)
        if not isinstance(over, Axis):
            ctx.fail("not-an-axis", "`over` needs an axis", chosen.span, help="write `group`, `batch` or `components`")
        axis = over.name
    parameter = parameter_of(ctx, expr, keywords, scope)
    ctx.graph.here = ctx.site or expr.span
    if axis == "components":
        if by is not None and not (isinstance(by, Node) and by.constant is not None):
            ctx.fail("by-components", "`by` cannot subdivide components", keywords["by"].span)
        return over_components(ctx, expr, name, x, where, parameter)
    level = Level(axis)
    if by is not None:
        by = (
            as_number(ctx, by, keywords["by"].span)
            if not isinstance(by, Bundle)
            else ctx.fail(
                "bundle-left-over",
                "`by` needs one value for each rollout, not one for each component",
                keywords["by"].span,
            )
        )
        by = None if by.constant is not None else by
    return each(lambda v, w: reduced(ctx, expr, name, v, w, by, level, parameter), x, where)


def parameter_of(ctx: Context, expr: Call, keywords: dict[str, Expr], scope: Scope) -> Fraction | None:
    """The constant `ddof` of `std` and `var`, `q` of `quantile` or `k` of `kth`; None for other reductions."""
    name = expr.function.text
    if name in SPREADS:
        if "ddof" not in keywords:
            return ctx.declared.ddof
        found = number(ctx, keywords["ddof"], scope).constant
        if found not in (0, 1):
            ctx.fail(
                "numerics",
                "`ddof` must be 0 or 1: a variance is divided by the count minus `ddof`",
                keywords["ddof"].span,
            )
        return found
    if name == "quantile":
        found = number(ctx, expr.arguments[1], scope).constant
        if found is None or not 0 <= found <= 1:
            ctx.fail("not-a-constant", "`q` must be a constant from 0 to 1", expr.arguments[1].span)
        return found
    if name == "kth":
        found = number(ctx, expr.arguments[1], scope).constant
        if found is None or found < 1 or found.denominator != 1:
            ctx.fail("not-a-constant", "`k` must be a constant whole number from 1", expr.arguments[1].span)
        return found
    return None


def check_axis(ctx: Context, chosen: Expr, scope: Scope) -> None:
    """Report a name after `over=` that is not an axis."""
    axes = ("rollout", *AXES) if ctx.declared.lists else (*AXES,)
    if isinstance(chosen, Name) and chosen.text not in ("rollout", *AXES, *scope.parameters):
        ctx.fail(
            "not-an-axis",
            f"`{shorten(chosen.text)}` is not an axis",
            chosen.span,
            help="a list is reduced to its rollout: write `over=rollout`"
            if chosen.text in ctx.declared.lists
            else did_you_mean(chosen.text, axes, f"write {', '.join(f'`{a}`' for a in axes[:-1])} or `{axes[-1]}`"),
        )


def reduced(
    ctx: Context,
    expr: Call,
    name: str,
    value: Value,
    where: Value,
    by: Node | None,
    over: Level,
    parameter: Fraction | None,
) -> Node:
    """One reduction over a group or the batch, as a node."""
    graph, text = ctx.graph, shorten(expr.arguments[0].span.text)
    mask = as_truth(ctx, where, expr.span).holds
    if REDUCTIONS[name].boolean:
        truth = as_truth(ctx, value, expr.arguments[0].span)
        known = graph.either(truth.holds, truth.fails)
        mask = graph.both(mask, known)  # a missing condition is ignored
        x = truth.holds
    else:
        x = as_number(ctx, value, expr.arguments[0].span)
        if name != "count":
            refuse_nominal(ctx, x, expr.arguments[0])
    if x.level <= over:
        have = "one value for the batch" if x.level is Level.BATCH else "one value for each group"
        have = "one value for each rollout" if x.level is Level.ROLLOUT else have
        spelling = f"write `{text}` without `{name}`"
        if x.level is Level.GROUP and over is Level.GROUP:
            spelling = f"did you mean `{name}({text}, over=batch)`?"
        ctx.fail(
            "wrong-level",
            f"`{text}` is {have}, so it cannot be reduced over the {over}",
            expr.span,
            help=spelling,
        )
    if REDUCTIONS[name].keeps_level and over is Level.BATCH and x.level is Level.GROUP:
        x = graph.spread(x)
    if finest((mask.level, x.level)) is not x.level:
        if ctx.site is not None and text in ctx.prelude.columns:  # a dialect counts by it
            ctx.fail(
                "wrong-level",
                f"the dialect `{ctx.declared.dialect}` whitens by `{text}`, one number for each {x.level}, and this is "
                f"one for each {mask.level}",
                expr.span,
                help="whiten one of each rollout, such as `sum(x, over=rollout)`, leave the step out, as `decoupled` "
                "does, or leave the dialect out",
            )
        ctx.fail(
            "wrong-level",
            f"`where` has more values than `{text}`, which is one for {_part(x.level)}",
            expr.span,
            help="reduce the condition first: `any(...)`",
        )
    if over is Level.BATCH and ctx.keep is not None:
        mask = graph.both(mask, ctx.keep)
    if by is not None and finest((by.level, x.level)) is not x.level:
        ctx.fail("wrong-level", f"`by` has more values than `{text}`, which is one for {_part(x.level)}", expr.span)
    if name == "kth" and parameter == 1:
        return graph.reduce("max", x, mask, by, over)
    return graph.reduce(name, x, mask, by, over, parameter)


def _part(level: Level) -> str:
    return "the batch" if level is Level.BATCH else f"each {level}"


def over_components(
    ctx: Context, expr: Call, name: str, value: Value, where: Value, parameter: Fraction | None
) -> Node:
    """A reduction over the components, unrolled: their number is known."""
    graph, text = ctx.graph, shorten(expr.arguments[0].span.text)
    if not isinstance(value, Bundle):
        ctx.fail(
            "wrong-level",
            f"`{text}` is not one value for each component",
            expr.span,
            help="remove `over=components`, or use `rewards` or `weights`",
        )
    if name in ("quantile", "kth", "rank", "std_others"):
        ctx.fail("not-yet", f"`{name}` does not support `over=components`", expr.span)
    span = expr.arguments[0].span
    wheres = where.values if isinstance(where, Bundle) else (where,) * len(value.values)
    masks = [as_truth(ctx, w, expr.span).holds for w in wheres]
    if REDUCTIONS[name].boolean:
        truths = [as_truth(ctx, v, span) for v in value.values]
        if name == "any":
            return graph.any_of([graph.both(m, t.holds) for m, t in zip(masks, truths, strict=True)])
        return graph.all_of(
            [graph.either(graph.negation(m), graph.negation(t.fails)) for m, t in zip(masks, truths, strict=True)]
        )
    nodes = [as_number(ctx, v, span) for v in value.values]
    nodes = [graph.if_(m, x, graph.missing()) for m, x in zip(masks, nodes, strict=True)]
    if name in ("sum", "mean", "std", "var"):
        refuse_unlike_levels(ctx, nodes, expr.span)
    zero = graph.const(0)
    count = fold(lambda a, b: graph.apply("+", a, b), [graph.present(x) for x in nodes])
    summed = graph.sum_components(nodes)
    if name == "sum":
        return graph.coalesce(summed, zero)
    if name == "count":
        return count
    if name in ("min", "max"):
        operator = "minimum" if name == "min" else "maximum"
        return fold(lambda a, b: graph.coalesce(graph.apply(operator, a, b), graph.coalesce(a, b)), nodes)
    mean = graph.apply("/", summed, graph.apply("maximum", count, graph.const(1)))
    if name == "mean":
        return mean
    squares = [graph.apply("*", d, d) for d in (graph.apply("-", x, mean) for x in nodes)]
    assert parameter is not None, "`std` and `var` have a divisor"
    over = graph.apply("-", count, graph.const(parameter))
    several = graph.compare(">", count, graph.const(1))
    spread = graph.coalesce(graph.sum_components(squares), zero)
    variance = graph.if_(several, graph.apply("/", spread, graph.apply("maximum", over, graph.const(1))), zero)
    return variance if name == "var" else graph.apply("sqrt", variance)
