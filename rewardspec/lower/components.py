"""Components: their shaped values, weights and gates."""

from __future__ import annotations

from rewardspec.ir.graph import Node
from rewardspec.ir.least_seen import least_seen
from rewardspec.language.declarations import Component
from rewardspec.lower.context import Context
from rewardspec.lower.convert import OF_IDS, as_condition, number, refuse_nominal
from rewardspec.lower.values import Skip
from rewardspec.ops.domain import Level
from rewardspec.syntax.tree import Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Label
from rewardspec.text.numbers import format_number


def shaped_value(ctx: Context, name: str) -> Node:
    """[N] a component's shaped value, one for each rollout."""
    declaration = ctx.declared.components[name]
    expr = declaration.value
    if expr is None:
        raise Skip

    def make() -> Node:
        node = number(ctx, expr, ctx.user)
        if node.domain.ids:
            message = f"the values of `{name}` are ids, which cannot be rewarded"
            ctx.fail("not-a-number", message, expr.span, help=OF_IDS)
        if node.domain.symbols:
            ctx.fail(
                "not-a-number",
                f"the values of `{name}` are names, which cannot be rewarded",
                declaration.span,
                help="write truth values as numbers: `values: [0, 1]`"
                if {symbol.lower() for symbol in node.domain.symbols} <= {"true", "false", "yes", "no"}
                else "move it to `signals:`",
            )
        node = ctx.graph.spread(node)
        ctx.graph.names.setdefault(node, name)
        check_gate(ctx, declaration)
        return node

    return ctx.once(("component", name), declaration.span, make)


def check_gate(ctx: Context, declaration: Component) -> None:
    """Report a gate that never opens, and a missing `otherwise` for a value below 0."""
    value = declaration.value
    if not isinstance(value, If) or declaration.when is None:
        return
    condition = as_condition(ctx, declaration.when, ctx.user)
    if condition.domain.constant == 0 and not ctx.declared.given:  # at one fixed step a closed gate is fine
        labels, help = reachable(ctx, declaration.when)
        ctx.fail(
            "gate-never-opens",
            f"the gate of `{declaration.name}` never opens",
            declaration.when.span,
            note="never true",
            labels=labels,
            help=help,
        )
    inner = number(ctx, value.then, ctx.user)
    if declaration.says("otherwise") or inner.domain.lo >= 0 or ctx.declared.given:
        return
    least = least_seen(ctx.graph, inner, condition)
    if least is not None and least < 0:  # an example, since related parts make the domain too wide
        ctx.fail(
            "otherwise-needed",
            f"`{declaration.name}` can be negative, so a closed gate, which gives 0, would be a reward",
            declaration.when.span,
            help=f"add `otherwise: {format_number(inner.domain.lo)}`, its lowest value, or `otherwise: ignore`"
            if least == inner.domain.lo
            else "add `otherwise:` with the value for a closed gate, or `otherwise: ignore`",
        )


def reachable(ctx: Context, when: Expr) -> tuple[tuple[Label, ...], str | None]:
    """For a comparison that is never true: labels with the domain, and help with the nearest possible comparison."""
    match when:
        case Operation(operator=operator, operands=(Name(text=name), Number(value=limit))) if (
            name in ctx.declared.columns
        ):
            column = ctx.declared.columns[name]
            domain = column.domain
            low, high = (format_number(end) for end in (domain.lo, domain.hi))
            if operator in (">=", ">") or (operator == "==" and limit > domain.hi):
                label, nearest = f"at most {high}", f"did you mean `{name} >= {high}`?"
            elif operator in ("<=", "<") or (operator == "==" and limit < domain.lo):
                label, nearest = f"at least {low}", f"did you mean `{name} <= {low}`?"
            else:
                label, nearest = str(domain), None
            return (Label(column.domain_span, f"`{name}` is {label}"),), nearest
    return (), None


def weight_value(ctx: Context, name: str) -> Node:
    """The weight of a component: one number per batch or group."""
    expr = ctx.declared.components[name].weight
    if expr is None:
        raise Skip

    def make() -> Node:
        node = number(ctx, expr, ctx.user)
        refuse_nominal(ctx, node, expr)
        if node.level >= Level.ROLLOUT:
            ctx.fail(
                "wrong-level",
                f"the weight of `{name}` differs from {node.level} to {node.level}",
                expr.span,
                help="a weight is one number per batch or group; shape the component with `expr:` or `when:`",
            )
        return node

    return ctx.once(("weight", name), expr.span, make)
