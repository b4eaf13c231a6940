"""A stage that can lower the total of rollouts that reach it.

A later stage can add a negative value, so a rollout that passes the stage before it can be worth less than one that
fails there. The policy then learns to fail there.

```yaml
signals: {process: {values: [-1, 0, 1]}, score: {range: [-3, 3]}}
components:
  staged:
    stages:
      - process
      - {add: score, when: process >= 1}
advantage: grpo
```

Write `squash: sigmoid`, or scale what is added to start at 0.

PRS (Eq. 15) puts a sigmoid around later stages for this reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import side_by_side
from rewardspec.lint.registry import finding
from rewardspec.lint.rollouts import some_rollouts
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Expr
from rewardspec.text.diagnostics import Diagnostic, Report


@finding("stage-lowers-total", __doc__)
def stage_lowers_total(facts: Facts) -> Iterator[Diagnostic]:
    for name, declaration in facts.declared.components.items():
        if declaration.says("squash"):
            continue
        passed: list[Expr] = []
        for i, stage in enumerate(declaration.stages):
            passed += [stage.when] if stage.when is not None else []
            if i == 0 or stage.when is None:
                continue
            least = _least(facts, stage.add, passed)
            if least is None or least >= 0:
                continue
            yield facts.warn(
                "stage-lowers-total",
                f"this stage of `{name}` can lower the total: it adds as little as {float(least):g}",
                stage.add.span,
                help="add `squash: sigmoid` to the component, or scale this to start at 0",
            )


def _least(facts: Facts, add: Expr, passed: list[Expr]) -> Fraction | None:
    """The least value that a stage adds to the rollouts tried for which its conditions hold; None if there is none."""
    lowering = Lowering(facts.declared, Report())
    try:
        value = lowering.number(add, lowering.user)
        gates = [lowering.condition(when, lowering.user) for when in passed]
    except Skip:
        return None
    tried = some_rollouts([value, *gates])
    if tried is None:
        return None
    columns, rows = tried
    seen = [GroupEvaluator(n, columns, {})(rows, {}) for n in (value, *gates)]
    held = [v for v, *holds in side_by_side(*seen) if v is not None and all(h == 1 for h in holds)]
    return min(held, default=None)
