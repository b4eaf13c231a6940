"""The sections of a spec about groups and rollouts: keep, refill, advantage, guarantees, labels."""

from __future__ import annotations

from fractions import Fraction
from math import inf

from rewardspec.ir.graph import Graph, Node, TooLarge, walk
from rewardspec.ir.node import is_across_rollouts
from rewardspec.language.declarations import State, Use
from rewardspec.lower.components import shaped_value
from rewardspec.lower.context import Context
from rewardspec.lower.convert import as_condition, as_number, as_truth, number, refuse_bundle, refuse_nominal
from rewardspec.lower.names import definition_value, signal
from rewardspec.lower.program import StateValue
from rewardspec.lower.unknown import names_in
from rewardspec.lower.values import Bundle, Skip, Truth
from rewardspec.ops.domain import Level, interval
from rewardspec.syntax.tree import Expr, Name
from rewardspec.text.diagnostics import Label, Report


def kept_groups(ctx: Context, expr: Expr) -> Node:
    """[P] whether `keep` keeps each group."""
    node = as_condition(ctx, expr, ctx.user)
    if node.level >= Level.ROLLOUT:
        ctx.fail(
            "wrong-level",
            "`keep` needs one value per group, and this differs within a group",
            expr.span,
            help="reduce it: `any(...)`, `all(...)`, `var(...) > 0`",
        )
    node = ctx.graph.spread(node, Level.GROUP)
    ctx.graph.names.setdefault(node, "keep")
    return node


def drawn_groups(ctx: Context, expr: Expr, keep: Node) -> Node:
    """[P] how often each group is in the batch: 0 for those that `keep` drops."""
    graph = ctx.graph
    score = number(ctx, expr, ctx.user)
    if score.level >= Level.ROLLOUT:
        ctx.fail(
            "wrong-level",
            "`refill` needs one score per group, and this differs within a group",
            expr.span,
            help="reduce it: `mean(...)`, `var(...)`",
        )
    if score.domain.symbols:
        ctx.fail("not-a-number", "`refill` needs a number, not a name", expr.span)
    refuse_nominal(ctx, score, expr)
    graph.names.setdefault(score, "refill")
    score = graph.spread(score, Level.GROUP)
    once_or_more = interval(Fraction(1), inf)
    drawn = graph.node("copies", (keep, score), (), Level.GROUP, once_or_more)
    graph.names.setdefault(drawn, "drawn")
    node = graph.if_(keep, drawn, graph.const(0))
    graph.names.setdefault(node, "copies")
    return node


def advantage_value(ctx: Context, expr: Expr, quiet: bool) -> Node:
    """[N] the advantage: 0 for a rollout without any measured component, and in dropped groups."""
    if quiet:  # a component is wrong, so the schemes have no value either
        names_in(ctx, expr, frozenset(), ctx.user)
        raise Skip
    value = ctx.value(expr, ctx.user)
    refuse_bundle(ctx, value, expr, "the advantage needs one value per rollout, not one for each component", "sum")
    node = as_number(ctx, value, expr.span)
    refuse_nominal(ctx, node, expr)
    if node.level < Level.ROLLOUT:
        ctx.fail(
            "wrong-level",
            f"the advantage needs one value per rollout, not one per {node.level}",
            expr.span,
            help="compare each rollout with its group: `center`, `zscore` or a scheme such as `grpo`",
        )
    graph = ctx.graph
    graph.here = expr.span
    shaped = [shaped_value(ctx, name) for name in ctx.declared.components]
    measured = graph.any_of([_measured(graph, value, node.level) for value in shaped])
    node = graph.if_(measured, node, graph.const(0))
    if ctx.keep is not None:
        node = graph.if_(ctx.keep, node, graph.const(0))
    return node


def carried_state(ctx: Context, state: State) -> StateValue:
    """A state after the batch, at its level. Every group counts, whether `keep` keeps it or not."""
    keep, ctx.keep = ctx.keep, None
    try:
        node = number(ctx, state.update, ctx.user)
    finally:
        ctx.keep = keep
    refuse_nominal(ctx, node, state.update)
    refuse_nominal(ctx, node, state.update)
    level = state.column.level
    if node.level > level:
        of_all = ", over=batch" if level is Level.BATCH else ""
        ctx.fail(
            "wrong-level",
            f"`{state.name}` needs one value per {level}, and its update is one per {node.level}",
            state.update.span,
            help=f"reduce it: `mean(...{of_all})`, `max(...{of_all})`"
            + (
                "; or keep one value per group: add `by:`" if level is Level.BATCH and node.level is Level.GROUP else ""
            ),
        )
    key = None if state.by is None else signal(ctx, state.by)
    return StateValue(state, ctx.graph.spread(node, level), key)


def _measured(graph: Graph, value: Node, level: Level) -> Node:
    """Whether a component has a value here. Of a list that the advantage does not have: anywhere in it, or it is empty.

    A rollout that made no call was measured, too: it has none.
    """
    found, one = graph.present(value), graph.const(1)
    if not found.level.listed or found.level is level or found.constant == 1:
        return found if found.constant is None else graph.const(found.constant)
    items = graph.reduce("any", graph.const(1, found.level), one, None, Level.ROLLOUT)
    return graph.either(graph.reduce("any", found, one, None, Level.ROLLOUT), graph.negation(items))


def promise(ctx: Context, expr: Expr) -> Node:
    """A guarantee: broken where it is false, not where it is missing."""
    value = ctx.value(expr, ctx.user)
    if isinstance(value, Bundle):
        value = Truth(
            ctx.graph.all_of([as_truth(ctx, v, expr.span).holds for v in value.values]),
            ctx.graph.any_of([as_truth(ctx, v, expr.span).fails for v in value.values]),
        )
    return ctx.graph.negation(as_truth(ctx, value, expr.span).fails)


def label_of_one(ctx: Context, expr: Expr) -> Node:
    """Whether a trajectory gets a token, before there are groups, batches or steps."""
    return condition_of_one(ctx, expr, "a label")


def only_when_condition(ctx: Context, use: Use, only_when: Expr) -> Node:
    """Whether a reward function is called for a rollout."""
    node = condition_of_one(ctx, only_when, "`only_when`")
    uses = ctx.declared.uses
    columns = [n.attributes[0] for n in walk([node]) if n.op == "column"]
    if not columns:
        ctx.fail(
            "asked-of-nothing",
            f"the `only_when` of `{use.column}` reads no column",
            only_when.span,
            help="compare a value of the rollout: `correct >= 1`",
        )
    for column in columns:
        if column in uses and uses[column].only_when is not None:
            itself = column == use.column
            ctx.fail(
                "asked-late",
                f"the `only_when` of `{use.column}` reads `{column}`"
                + (" itself" if itself else ", which has its own `only_when`"),
                only_when.span,
                labels=() if itself else (Label(uses[column].span, "not measured for every rollout"),),
                help="compare columns that are measured for every rollout",
            )
    return node


def condition_of_one(ctx: Context, expr: Expr, reader: str) -> Node:
    """A condition on the values of one rollout. reader: the subject of the message."""
    node = as_condition(ctx, expr, ctx.user)
    if any(is_across_rollouts(n) or n.op == "given" for n in walk([node])):
        ctx.fail(
            "wrong-level",
            f"{reader} can read only one rollout, not its group, batch or step",
            expr.span,
            help="compare the rollout's components: `correct >= 1`",
        )
    for column in (n.attributes[0] for n in walk([node]) if n.op == "column"):
        if column in ctx.declared.states:
            ctx.fail(
                "wrong-level",
                f"{reader} can read only one rollout, not the state `{column}`",
                expr.span,
                help="compare the rollout's components: `correct >= 1`",
            )
    if node.level.listed:
        ctx.fail(
            "wrong-level",
            f"{reader} needs one value per rollout, not one per {node.level}",
            expr.span,
            help="reduce it: `any(..., over=rollout)`, `all(..., over=rollout)`",
        )
    return ctx.graph.spread(node)


def check_definitions(ctx: Context) -> None:
    """Report mistakes in definitions, used or not: values are lowered, functions checked for unknown names."""
    for definition in ctx.declared.functions.values():
        parameters = frozenset(name for name, _ in definition.signature.parameters or ())
        for _, default in definition.signature.parameters or ():
            if default is not None:
                names_in(ctx, default, frozenset(), ctx.user)
        if definition.body is not None:
            names_in(ctx, definition.body, parameters, ctx.user)
    for name in ctx.declared.values:
        ctx.attempt(definition_value, ctx, name, ctx.user, None)


def logged_total(ctx: Context, results: list[Node]) -> Node | None:
    """[N] the spec's `total`, or else the prelude's: the reward that trainers log.

    The prelude's is used if the spec's is not a number per rollout, or reads columns that the outputs do not.
    None if neither fits.
    """
    read = {n for n in walk(results) if n.op in ("column", "given")}
    names, report, ctx.report = dict(ctx.graph.names), ctx.report, Report()
    try:
        for scope in [ctx.user] * ("total" in ctx.declared.values) + [ctx.own]:
            node = ctx.attempt(number, ctx, Name(ctx.declared.place.value, "total"), scope)
            if (
                node is not None
                and not node.domain.nominal
                and read.issuperset(n for n in walk([node]) if n.op in ("column", "given"))
            ):
                return ctx.graph.spread(node)
    except TooLarge:
        pass
    finally:
        ctx.graph.names, ctx.report = names, report  # logging must not change the names of nodes
    return None
