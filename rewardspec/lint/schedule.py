"""Schedules: whether they get where they are meant to within the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from operator import ge, gt, le, lt

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.finding import NO_LENGTH, Facts, finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import UNKNOWN
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.syntax.tree import Call, Expr, Name, Operation
from rewardspec.text.diagnostics import Diagnostic, Report
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span

GRID = 400  # moments of a run at which a weight is looked at
_HOLDS = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@finding("schedule-out-of-reach")
def schedule_out_of_reach(facts: Facts) -> Iterator[Diagnostic]:
    """A schedule that is not over when training is.

    A ramp ends after the last step, so it never gets to its end and what it ends in is never trained with; or
    `step` or `progress` is compared with something that it does not pass. `progress` goes from 0 to 1; how far `step`
    goes is told by `rewardspec check SPEC --total-steps 200`, and without it nothing is said of `step`. It follows from
    the formula of the ramp.

    ```yaml
    components:
      correct: {values: [0, 1]}
      format: {values: [0, 1], weight: "1 - ramp(step, start=0, end=300)"}     # 200 steps: a third is left
    advantage: grpo
    ```

    Write schedules in `progress`, which is 1 at the end however long the run is: `ramp(progress, end=0.8)`.
    """
    lowering = _lowering(facts)
    reads = {part.text for _, part in facts.own_expressions() if isinstance(part, Name)}
    if "step" in reads and facts.run.total_steps is None:
        facts.leave_out("schedule-out-of-reach", NO_LENGTH)
    for whole, expr in facts.own_expressions():
        match expr:
            case Call() if expr.function.text == "ramp" and "ramp" not in _own_functions(facts):
                said = _ramp(facts, lowering, expr)
            case Operation(operator=("<" | "<=" | ">" | ">="), operands=(_, _)) if expr is not whole:
                said = _comparison(facts, lowering, expr)
            case _:
                continue
        if said is not None:
            yield facts.warn(
                "schedule-out-of-reach",
                said,
                expr.span,
                note="" if facts.run.total_steps is None else f"in {facts.run.total_steps} steps",
                help="`progress` goes from 0 to 1 however long the run is: `ramp(progress, end=0.8)`",
            )


def _ramp(facts: Facts, lowering: Lowering, call: Call) -> str | None:
    """What is wrong with a ramp over time; None where nothing is."""
    given = dict(zip(("x", "start", "end"), call.arguments, strict=False)) | {k.text: e for k, e in call.keywords}
    _, last = _time(facts, lowering, given.get("x"))
    start, end = (
        Fraction(default) if name not in given else _constant(lowering, given[name])
        for name, default in (("start", 0), ("end", 1))
    )
    if last is None or start is None or end is None or not start < end or end <= last:
        return None
    at_end = max(Fraction(0), (last - start) / (end - start))
    if not at_end:
        return None if _is_said_of_weight(facts, call.span) else "this ramp never begins"
    return f"this ramp never gets to its end: it is {float(at_end):.3g} in the end, not 1"


def _comparison(facts: Facts, lowering: Lowering, comparison: Operation) -> str | None:
    """What is wrong with a comparison of time with a number; None where nothing is."""
    (left, right), operator = comparison.operands, comparison.operator
    time, last = _time(facts, lowering, left)
    limit = _constant(lowering, right)
    if last is None:
        (time, last), limit, operator = _time(facts, lowering, right), _constant(lowering, left), _TURNED[operator]
    if last is None or limit is None or _is_said_of_weight(facts, comparison.span):
        return None
    first, final = (_HOLDS[operator](at, limit) for at in (Fraction(0), last))
    if first != final:
        return None
    return f"`{time}` does not pass {format_number(limit)}: this {'always' if first else 'never'} holds"


def _time(facts: Facts, lowering: Lowering, expr: Expr | None) -> tuple[str, Fraction | None]:
    """The name of `step` or `progress`, where an expression is one of them, and how far it goes."""
    node = None if expr is None else _lowered(lowering, expr)
    name = node.attributes[0] if node is not None and node.op == "given" else ""
    if name == "progress":
        return name, Fraction(1)
    total = facts.run.total_steps
    return name, Fraction(total) if name == "step" and total is not None else None


def _constant(lowering: Lowering, expr: Expr) -> Fraction | None:
    node = _lowered(lowering, expr)
    return None if node is None else node.constant


def _lowered(lowering: Lowering, expr: Expr) -> Node | None:
    try:
        return lowering.number(expr, lowering.user)
    except Skip:
        return None


def _lowering(facts: Facts) -> Lowering:
    declared, total = facts.declared, facts.run.total_steps
    if total is not None:
        declared = replace(declared, given={**declared.given, "total_steps": Fraction(total)})
    return Lowering(declared, Report())


def _own_functions(facts: Facts) -> set[str]:
    return {name for name, definition in facts.declared.functions.items() if definition.body is not None}


def _is_said_of_weight(facts: Facts, span: Span) -> bool:
    """Whether a place is in a weight that never moves, which is a finding of its own."""
    weights = ((c.weight.constant, facts.declared.components[c.name].weight) for c in facts.program.components)
    return any(
        constant is not None and weight is not None and weight.span.start <= span.start <= weight.span.end
        for constant, weight in weights
    )


@finding("schedule-turns-sign")
def schedule_turns_sign(facts: Facts) -> Iterator[Diagnostic]:
    """A weight that changes its sign within the run.

    A schedule that is to fade out goes on falling: from the step at which it crosses 0 a reward is a penalty, and what
    was taught is untaught. How far `step` goes is told by `rewardspec check SPEC --total-steps 300`; without it nothing
    is said of `step`. It follows from the formula of the weight.

    ```yaml
    components:
      correct: {values: [0, 1]}
      explore: {range: [0, 1], weight: 1 - step / 100}         # --total-steps 300
    advantage: gdpo
    ```

    Hold it at 0: `weight: max(1 - step / 100, 0)`.
    """
    total = facts.run.total_steps
    for component in facts.program.components:
        order = walk([component.weight])
        times = {n.attributes[0] for n in order if n.op == "given"}
        if not times & {"step", "progress"} or any(n.op in ("column", "copies", *REDUCTIONS) for n in order):
            continue
        if component.weight.domain.lo >= 0 or component.weight.domain.hi <= 0:
            continue
        if total is None and times != {"progress"}:
            facts.leave_out("schedule-turns-sign", NO_LENGTH)
            continue
        last = total or GRID
        moments = sorted({round(Fraction(i * (last - 1), GRID)) for i in range(GRID + 1)})
        signs = [(step, _sign_at(component.weight, step, last)) for step in moments]
        known = [(step, sign) for step, sign in signs if sign]
        turn = next((i for i in range(1, len(known)) if known[i][1] != known[0][1]), None)
        if turn is None:
            continue
        low, high = known[turn - 1][0], known[turn][0]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _sign_at(component.weight, middle, last) == known[turn][1] else (middle, high)
        when = f"from step {high} of {total}" if total is not None else f"from about {high / last:.0%} of the run"
        side = "below" if known[turn][1] < 0 else "above"
        text = facts.document.components[component.name].weight.text
        end = f"`max({text}, 0)`" if side == "below" else f"`min({text}, 0)`"
        yield facts.warn(
            "schedule-turns-sign",
            f"the weight of `{component.name}` is {side} 0 {when}",
            facts.component_place(component.name, "weight"),
            note="a reward first, and a penalty then" if side == "below" else "a penalty first, and a reward then",
            help=f"hold it at 0, {end}, or say why: `allow: {{schedule-turns-sign: why}}`",
        )


def _sign_at(weight: Node, step: int, total: int) -> int:
    """-1, 0 or 1; 0 where it is too close to call."""
    moment = {"step": Fraction(step), "total_steps": Fraction(total), "progress": Fraction(step, total)}
    try:
        (value,) = GroupEvaluator(weight, [], moment)([()], {})
        return 0 if value is None or value is UNKNOWN else (value > 0) - (value < 0)
    except Inexact:
        return 0
