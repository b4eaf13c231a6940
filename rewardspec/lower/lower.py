"""Declarations to a program: every component, the advantage and the guarantees as nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rewardspec.ir.graph import Graph, Node, TooLarge, walk
from rewardspec.language.declarations import Declarations
from rewardspec.lower.calls import call_value
from rewardspec.lower.components import shaped_value, weight_value
from rewardspec.lower.context import Context, Meaning
from rewardspec.lower.convert import as_condition, number
from rewardspec.lower.names import name_value
from rewardspec.lower.operators import choice, number_value, operation
from rewardspec.lower.outcome import right_rollouts
from rewardspec.lower.program import ComponentValue, Program
from rewardspec.lower.sections import (
    advantage_value,
    carried_state,
    check_definitions,
    drawn_groups,
    kept_groups,
    label_of_one,
    logged_total,
    only_when_condition,
    promise,
)
from rewardspec.lower.unknown import names_in
from rewardspec.lower.values import Scope, Skip, Truth, Value
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Report

Decide = Callable[[Graph, Node], Node]

MEANINGS: Mapping[type[Expr], Meaning] = {
    Number: number_value,
    Name: name_value,
    Call: call_value,
    Operation: operation,
    If: choice,
}


class Lowering:
    """Parts of a spec as nodes of one graph, for callers that need single parts.

    Every method raises `Skip` if there is no value, with the reason in the report. `user` is the scope with the spec's
    names, `own` the one with the prelude's only.
    """

    def __init__(self, declared: Declarations, report: Report):
        self._context = Context(declared, report, MEANINGS)
        self.user, self.own = self._context.user, self._context.own

    def value(self, expr: Expr, scope: Scope) -> Value:
        """The value of an expression, which can be a bundle or an axis."""
        return self._context.value(expr, scope)

    def number(self, expr: Expr, scope: Scope) -> Node:
        """An expression as one number."""
        return number(self._context, expr, scope)

    def condition(self, expr: Expr, scope: Scope) -> Node:
        """Whether an expression is true: a node that is never missing."""
        return as_condition(self._context, expr, scope)

    def component(self, name: str) -> Node:
        """[N] the shaped value of a component, one for each rollout."""
        return shaped_value(self._context, name)

    def right(self) -> Truth:
        """Whether a rollout is right, as `outcome:` declares it."""
        return right_rollouts(self._context)

    def indicator(self, holds: Expr) -> Program:
        """1 where a condition holds, and 0 elsewhere, as the advantage of a program of its own. States are columns."""
        declared, graph = self._context.declared, self._context.graph
        columns = {**declared.columns, **{name: state.column for name, state in declared.states.items()}}
        value = graph.spread(graph.if_(self.condition(holds, self.user), graph.const(1), graph.const(0)))
        return Program(graph, columns, [], None, None, value, None, {}, {}, declared.eps, declared.ddof)


def lower(declared: Declarations, report: Report, decide: Decide | None = None) -> Program | None:
    """The program of a spec; None if anything in it is wrong (reasons in `report`).

    decide: replaces the advantage in guarantees.
    """
    ctx = Context(declared, report, MEANINGS)
    try:
        return _program(ctx, decide)
    except TooLarge:
        start = declared.place.value
        report.error(
            "too-large",
            "the spec is too large to compile",
            start.source.span(start.start, start.start + 1),
            help="look for definitions that each use another one several times: the size multiplies",
        )
    except Skip:
        pass
    return None


def _program(ctx: Context, decide: Decide | None) -> Program | None:
    declared = ctx.declared
    shaped = [ctx.attempt(shaped_value, ctx, name) for name in declared.components]
    weights = [ctx.attempt(weight_value, ctx, name) for name in declared.components]
    keep = ctx.attempt(kept_groups, ctx, declared.keep) if declared.keep else None
    copies = ctx.attempt(drawn_groups, ctx, declared.refill, keep) if declared.refill and keep else None
    components = [
        ComponentValue(name, value, weight)
        for name, value, weight in zip(declared.components, shaped, weights, strict=True)
        if value is not None and weight is not None
    ]
    broken = len(components) < len(declared.components)
    ctx.keep = keep
    ctx.copies = copies or (ctx.graph.const(1) if keep is None else keep)
    check_definitions(ctx)
    advantage = None
    if declared.advantage is not None:
        advantage = ctx.attempt(advantage_value, ctx, declared.advantage, quiet=broken)
    states = {name: ctx.attempt(carried_state, ctx, state) for name, state in declared.states.items()}
    outcome = ctx.attempt(right_rollouts, ctx) if declared.outcome is not None else None
    guarantees = _guarantees(ctx, advantage, decide)
    labels: dict[str, Node] = {}
    if not broken:
        labels = _labels(ctx)
        for use in declared.uses.values():
            if use.only_when is not None:
                ctx.attempt(only_when_condition, ctx, use, use.only_when)
    if ctx.report.failed or broken or advantage is None:
        return None
    program = Program(
        ctx.graph,
        declared.columns,
        components,
        keep,
        copies,
        advantage,
        outcome,
        guarantees,
        labels,
        declared.eps,
        declared.ddof,
        states={name: state for name, state in states.items() if state is not None},
    )
    program.total = logged_total(ctx, program.roots)
    asked = set(walk([*program.roots, *guarantees.values(), *labels.values()]))
    for node, message, span in ctx.never:
        if node in asked:
            ctx.report.error("undefined", message, span)
    return None if ctx.report.failed else program


def _guarantees(ctx: Context, advantage: Node | None, decide: Decide | None) -> dict[str, Node]:
    """The guarantees as conditions; without an advantage only their names are checked."""
    found: dict[str, Node] = {}
    if advantage is None:
        for expr in ctx.declared.guarantees.values():
            names_in(ctx, expr, frozenset({"advantage"}), ctx.user)
        return found
    ctx.advantage = decide(ctx.graph, advantage) if decide else advantage
    for name, expr in ctx.declared.guarantees.items():
        node = ctx.attempt(promise, ctx, expr)
        if node is not None:
            found[name] = node
            ctx.graph.names.setdefault(node, name)
    return found


def _labels(ctx: Context) -> dict[str, Node]:
    """Reward token to its condition on one trajectory, for the tokens that have one."""
    tokens = ctx.declared.reward_tokens
    found = {} if tokens is None else {name: ctx.attempt(label_of_one, ctx, e) for name, e in tokens.labels.items()}
    return {name: node for name, node in found.items() if node is not None}
