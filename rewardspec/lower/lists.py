"""Lists inside a rollout: places, neighbours, running sums; and components that have unlike levels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rewardspec.ir.graph import Node, walk
from rewardspec.lower.context import Context
from rewardspec.lower.convert import each, number, numbers
from rewardspec.lower.values import Scope, Value
from rewardspec.ops.domain import Level, finest
from rewardspec.ops.operators import REDUCTIONS
from rewardspec.syntax.tree import Call, Name
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.source import Span


def position(ctx: Context, name: str | None, span: Span) -> Node:
    """The place of every item in its list, from 1. name: of the list; None where the spec has one."""
    lists = ctx.declared.lists
    if name is None and len(lists) > 1:
        first = next(iter(lists))
        ctx.fail(
            "which-list", "the spec has several lists", span, help=f"say whose places you mean: `position({first})`"
        )
    if name is not None and name not in lists:
        known = ", ".join(f"`{shorten(known)}`" for known in lists)
        help = did_you_mean(name, lists, f"the lists are {known}" if lists else "declare it: `lists: {turn: {}}`")
        ctx.fail("unknown-list", f"no list is named `{shorten(name)}`", span, help=help)
    return ctx.graph.position(Level(next(iter(lists)) if name is None else name))


def position_of(ctx: Context, expr: Call) -> Node:
    """`position(turn)`."""
    (argument,) = expr.arguments
    if not isinstance(argument, Name):
        ctx.fail("unknown-list", "`position` takes the name of a list", argument.span, help="write `position(turn)`")
    return position(ctx, argument.text, argument.span)


def scan(ctx: Context, expr: Call, scope: Scope) -> Value:
    """`before(x)`, `after(x)`, `so_far(x)`, `returns(x, gamma)`: of an ordered list."""
    name, (first, *rest) = expr.function.text, expr.arguments
    parameter = None
    given = [*rest, *(value for _, value in expr.keywords)]
    if len(given) > 1:
        ctx.fail("duplicate-argument", "`gamma` is given twice", given[1].span, help="keep one of them")
    if name == "returns":
        parameter = number(ctx, given[0], scope).constant if given else Fraction(1)
        if parameter is None or not 0 <= parameter <= 1:
            ctx.fail("not-a-constant", "`gamma` must be a constant from 0 to 1", given[0].span)
    (x,) = ctx.values([first], scope)
    ctx.graph.here = ctx.site or expr.span

    def make(node: Node) -> Node:
        text = shorten(first.span.text)
        if not node.level.listed:
            each_one = "the batch" if node.level is Level.BATCH else f"each {node.level}"
            ctx.fail(
                "wrong-level",
                f"`{name}` needs the items of a list, and `{text}` has one value for {each_one}",
                first.span,
                help="give it a value of a list's level, such as a column with `level: turn`",
            )
        of = ctx.declared.lists.get(node.level.name)  # None for one that was refused where it is declared
        if of is not None and not of.ordered:
            ctx.fail(
                "not-ordered",
                f"the items of `{node.level}` have no order",
                first.span,
                help=f"declare `lists: {{{node.level}: {{ordered: true}}}}` if they follow each other",
            )
        return ctx.graph.scan(name, node, parameter)

    return each(lambda value: numbers(ctx, make, [value], [first]), x)


def refuse_unlike_levels(ctx: Context, nodes: Sequence[Node], span: Span) -> None:
    """Report a sum of components, some of list level, before they are normalised.

    The value of a rollout would be added to each of its items, so that a rollout with more items counts more.
    """
    fine = finest(node.level for node in nodes)
    if not fine.listed or all(node.level is fine or node.constant is not None for node in nodes):
        return
    if all(_is_normalised(node) for node in nodes):
        return
    names = list(ctx.declared.components)
    shown = names[next(i for i, node in enumerate(nodes) if node.level is fine)] if len(names) == len(nodes) else "x"
    ctx.fail(
        "unlike-levels",
        f"this adds rewards of the rollout to rewards of each {fine}",
        span,
        help=f"make one of each rollout, `sum({shown}, over=rollout)`, or normalise first: `advantage: decoupled`",
    )


def _is_normalised(node: Node) -> bool:
    """Whether a value is compared with its group or batch, apart from factors that these share."""
    if node.constant is not None or node.op == "missing":
        return True
    match node.op, node.args:
        case (("*" | "/"), (a, b)) if b.level < Level.ROLLOUT:
            return _is_normalised(a)
        case "*", (a, b) if a.level < Level.ROLLOUT:
            return _is_normalised(b)
        case "if", (_, *branches):
            return all(_is_normalised(x) for x in branches if x.level >= Level.ROLLOUT)
        case (("coalesce" | "neg" | "spread" | "required"), args):
            return all(_is_normalised(x) for x in args if x.level >= Level.ROLLOUT)
    return any(n.op in REDUCTIONS and n.attributes[0] < Level.ROLLOUT for n in walk([node]))
