"""A schedule that does not finish before training does.

A ramp ends after the last step, so training never uses its end value. Or `step` or `progress` is compared with a number
that it never crosses. `progress` goes from 0 to 1. The length of the run in steps is an option,
`rewardspec check SPEC --total-steps 200`; without it schedules over `step` are not checked.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1], weight: "1 - ramp(step, start=0, end=300)"}     # 200 steps: a third is left
advantage: grpo
```

Write schedules over `progress`, which is 1 at the end of every run: `ramp(progress, end=0.8)`.

It follows from the formula of the ramp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from operator import ge, gt, le, lt

from rewardspec.ir.graph import Node
from rewardspec.lint.expressions import own_expressions
from rewardspec.lint.facts import NO_LENGTH, Facts
from rewardspec.lint.registry import finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Call, Expr, Name, Operation
from rewardspec.text.diagnostics import Diagnostic, Report
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span

_HOLDS = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@finding("schedule-out-of-reach", __doc__)
def schedule_out_of_reach(facts: Facts) -> Iterator[Diagnostic]:
    lowering = _lowering(facts)
    reads = {part.text for _, part in own_expressions(facts.declared) if isinstance(part, Name)}
    if "step" in reads and facts.run.total_steps is None:
        facts.not_checked("schedule-out-of-reach", NO_LENGTH)
    for whole, expr in own_expressions(facts.declared):
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
                help="use `progress`, which goes from 0 to 1 in every run: `ramp(progress, end=0.8)`",
            )


def _ramp(facts: Facts, lowering: Lowering, call: Call) -> str | None:
    """The message about a ramp over time; None if it reaches its end."""
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
        return None if _is_said_of_weight(facts, call.span) else "this ramp never starts"
    return f"this ramp never reaches its end: it is {float(at_end):.3g} at the last step, not 1"


def _comparison(facts: Facts, lowering: Lowering, comparison: Operation) -> str | None:
    """The message about a comparison of time with a number; None if both answers occur."""
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
    return f"`{time}` never crosses {format_number(limit)}, so this is {'always' if first else 'never'} true"


def _time(facts: Facts, lowering: Lowering, expr: Expr | None) -> tuple[str, Fraction | None]:
    """(`step` or `progress` if the expression is one of them, its value at the end of the run if known)."""
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
    """Whether a place is in a constant weight, which `schedule-never-moves` is about."""
    weights = ((c.weight.constant, facts.declared.components[c.name].weight) for c in facts.program.components)
    return any(
        constant is not None and weight is not None and weight.span.start <= span.start <= weight.span.end
        for constant, weight in weights
    )
