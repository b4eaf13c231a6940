"""The outcome: which rollouts are right."""

from __future__ import annotations

from rewardspec.lower.components import reachable
from rewardspec.lower.context import Context
from rewardspec.lower.convert import as_condition, as_truth
from rewardspec.lower.values import Skip, Truth
from rewardspec.ops.domain import Level


def right_rollouts(ctx: Context) -> Truth:
    """Whether a rollout is right, as `outcome:` declares it."""
    expr = ctx.declared.outcome
    if expr is None:
        raise Skip  # it is wrong: reported already

    def make() -> Truth:
        as_condition(ctx, expr, ctx.user)  # a bundle or a non-condition is an error
        truth = as_truth(ctx, ctx.value(expr, ctx.user), expr.span)
        if truth.holds.level is not Level.ROLLOUT:
            ctx.fail(
                "wrong-level",
                f"`outcome` must differ between rollouts; this is one value per {truth.holds.level}",
                expr.span,
                help="compare a value of each rollout: `correct >= 1`"
                if truth.holds.level < Level.ROLLOUT
                else "reduce it: `any(..., over=rollout)`, `all(..., over=rollout)`",
            )
        if truth.holds.domain.constant is not None and not ctx.declared.given:
            always = bool(truth.holds.domain.constant)
            labels, help = reachable(ctx, expr)
            ctx.fail(
                "outcome-decided",
                "every rollout is right" if always else "no rollout can be right",
                expr.span,
                note="always true" if always else "never true",
                labels=labels if not always else (),
                help=help if not always else "write the threshold between right and wrong: `correct >= 1`",
            )
        return Truth(ctx.graph.spread(truth.holds), ctx.graph.spread(truth.fails))

    return ctx.once(("outcome", "outcome"), expr.span, make)
