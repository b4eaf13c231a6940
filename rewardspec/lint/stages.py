"""Stages: rewards that count one after the other (PRS, Eq. 13-15)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.language.declarations import read_expression
from rewardspec.lint.finding import Facts, finding, some_rollouts
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Diagnostic, Label, Report


def _stages(facts: Facts, name: str) -> list[tuple[Expr, Expr | None]]:
    """(add, when) of each stage of a component."""
    component = facts.document.components[name]
    quiet = Report()
    return [
        (add, read_expression(stage.when, quiet))
        for stage in component.stages or ()
        if (add := read_expression(stage.add, quiet)) is not None
    ]


@finding("unreachable-stage")
def unreachable_stage(facts: Facts) -> Iterator[Diagnostic]:
    """A stage whose conditions, with those of all stages before it, never hold together.

    A stage counts once its own condition and those of all before it hold (PRS, Eq. 14). Where the domains leave no
    value for which they do, it adds nothing, ever. It follows from the formula.

    ```yaml
    signals: {process: {values: [0, 1]}, answer: {values: [0, 1]}, bonus: {values: [0, 1]}}
    components:
      staged:
        stages:
          - process
          - {add: answer, when: process >= 1}
          - {add: bonus, when: process < 1}          # process >= 1 is asked for before
    advantage: grpo
    ```

    A stage adds to those before it (`{add: bonus, when: answer >= 1}`); what should count instead of them is a
    component of its own.
    """
    for name in facts.declared.components:
        passed: list[Expr] = []
        for add, when in _stages(facts, name):
            passed += [when] if when is not None else []
            if when is None or not passed:
                continue
            together = passed[0] if len(passed) == 1 else Operation(when.span, "and", tuple(passed))
            lowering = Lowering(facts.declared, Report())
            try:
                value = lowering.number(If(add.span, together, Number(add.span, 1), Number(add.span, 0)), lowering.user)
            except Skip:
                continue
            if value.constant == 0 or value.domain.constant == 0:
                yield facts.warn(
                    "unreachable-stage",
                    f"no rollout ever reaches this stage of `{name}`",
                    when.span,
                    note="never true, with what is asked for before",
                    help="a stage counts only once all stages before it are passed",
                )


@finding("stage-lowers-total")
def stage_lowers_total(facts: Facts) -> Iterator[Diagnostic]:
    """A stage that can take away from the total of who passes it.

    What a later stage adds can be below 0, so passing the stage before it can be worth less than failing there; that is
    what a policy learns to do. PRS puts a sigmoid around later stages for this reason (Eq. 15).

    ```yaml
    signals: {process: {values: [-1, 0, 1]}, score: {range: [-3, 3]}}
    components:
      staged:
        stages:
          - process
          - {add: score, when: process >= 1}
    advantage: grpo
    ```

    Write `squash: sigmoid`, or scale what is added to begin at 0.
    """
    for name in facts.declared.components:
        if facts.document.components[name].squash is not None:
            continue
        passed: list[Expr] = []
        for i, (add, when) in enumerate(_stages(facts, name)):
            passed += [when] if when is not None else []
            if i == 0 or when is None:
                continue
            least = _least(facts, add, passed)
            if least is None or least >= 0:
                continue
            yield facts.warn(
                "stage-lowers-total",
                f"passing on to this stage of `{name}` can lower the total: it adds as little as {float(least):g}",
                add.span,
                help="add `squash: sigmoid` to the component, or scale this to begin at 0",
            )


def _least(facts: Facts, add: Expr, passed: list[Expr]) -> Fraction | None:
    """The least that a stage is seen to add where all of its conditions hold; None where nothing shows it."""
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
    values, *conditions = (GroupEvaluator(n, columns, {})(rows, {}) for n in (value, *gates))
    held = [v for v, *holds in zip(values, *conditions, strict=True) if v is not None and all(h == 1 for h in holds)]
    return min(held, default=None)


@finding("stages-out-of-order")
def stages_out_of_order(facts: Facts) -> Iterator[Diagnostic]:
    """A later stage asks for no more of the same thing than an earlier one.

    Who has passed the earlier stage has passed this one: its condition does nothing, and most often two thresholds are
    swapped. It follows from the formula: the conditions of all stages before hold, too (PRS, Eq. 14).

    ```yaml
    signals: {score: {range: [0, 1]}, bonus: {values: [0, 1]}, extra: {values: [0, 1]}}
    components:
      staged:
        stages:
          - score
          - {add: bonus, when: score >= 0.8}
          - {add: extra, when: score >= 0.5}
    advantage: grpo
    ```

    Put the lower threshold first: `{add: bonus, when: score >= 0.5}`, then `{add: extra, when: score >= 0.8}`.
    """
    for name in facts.declared.components:
        asked: list[tuple[str, Fraction, bool, Expr]] = []
        for _, when in _stages(facts, name):
            found = _threshold(facts, when)
            if found is None:
                continue
            of, limit, strictly = found
            before = next((a for a in asked if a[0] == of and (a[1], a[2]) >= (limit, strictly)), None)
            if before is not None:
                yield facts.warn(
                    "stages-out-of-order",
                    f"this stage of `{name}` asks for no more of `{of}` than one before",
                    when.span,
                    labels=(Label(before[3].span, "asked for already"),),
                    help="put the lower threshold first",
                )
            asked.append((of, limit, strictly, when))


def _threshold(facts: Facts, when: Expr | None) -> tuple[str, Fraction, bool] | None:
    """What a condition asks for more of, how much, and whether more than that: of `score >= 0.5`, score, 0.5 and no."""
    match when:
        case Operation(operator=(">=" | ">") as operator, operands=(Name(text=text), limit)):
            pass
        case Operation(operator=("<=" | "<") as operator, operands=(limit, Name(text=text))):
            pass
        case _:
            return None
    lowering = Lowering(facts.declared, Report())
    try:
        constant = lowering.number(limit, lowering.user).constant
    except Skip:
        return None
    return None if constant is None else (text, constant, "=" not in operator)
