"""Components as expressions: `scale`, `when` and `stages` expand to the language's own functions and the prelude's."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from rewardspec.language.columns import has_function, is_expression, read_column, read_domain, read_function
from rewardspec.language.declarations import Column, Component, Stage, Use
from rewardspec.language.scalars import read_expression
from rewardspec.language.shape import Block
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Span

_OF_COLUMNS = ("values", "level", "missing", "outside", "use", "python", "with")  # no derived component has these


@dataclass(frozen=True, eq=False)
class Read:
    """A component with its column and its reward function. `damaged`: something in it is wrong."""

    component: Component
    column: Column | None
    use: Use | None
    damaged: bool


def read_component(name: str, block: Block, report: Report) -> Read:
    """A component; all its mistakes are reported."""
    place = block.place
    when = read_expression(block.one("when"), report)
    short = block.one("expr")  # `half: 0.5 * x` is a whole component
    sources = [part for part in ("expr", "stages") if part in place or (part == "expr" and short and short.text)]
    use = read_function(name, block, report)
    column, value = None, None
    stages: tuple[Stage, ...] = ()
    if sources:
        value, stages = _derived(name, block, sources, report)
    elif has_function(block) and use is None:
        pass  # the function is wrong: reported already
    elif not any(part in place for part in ("values", "range", "use")):
        read_column(name, block, report, use)
    elif use is not None and is_expression(use):
        value = _worked_out(block, use, report)
    else:
        column = read_column(name, block, report, use, gated="when" in block)
        value = _measured(block, column)
    if value is not None and "scale" in place:
        value = _scaled(name, value, block, use, Report() if column else report, report) if "scale" in block else None
    if value is not None and "when" in place:
        value = _gated(value, block, when, report)
    if "otherwise" in block and "when" not in place:
        report.error(
            "otherwise-alone",
            f"`{name}` has `otherwise` but no `when`",
            place["otherwise"].name,
            help="add `when:`, or remove `otherwise`",
        )
    if "squash" in place and "stages" not in sources:
        help = "remove it, or write `expr: sigmoid(...)`"
        report.error("not-staged", f"`{name}` has `squash` but no `stages`", place["squash"].name, help=help)
    weight = read_expression(block.one("weight"), report)
    damaged = value is None or ("weight" in place and weight is None)
    if weight is None and "weight" not in place:
        weight = Number(place.name, Fraction(1))
    component = Component(name, place, value, weight, when, stages, read_allow(block))
    return Read(component, column, use, damaged)


def read_allow(block: Block) -> dict[str, Span]:
    """The findings that a spec or component allows: code to the place of the entry."""
    allow = block.block("allow")
    return {code: allow.place[code].name for code, _ in allow.ones()}


def _call(function: str, *arguments: Expr) -> Call:
    span = arguments[0].span
    return Call(span, Name(span, function), arguments)


def _measured(block: Block, column: Column | None) -> Expr | None:
    if column is None:
        return None
    raw = _call("raw", Name(block.place.name, column.name))
    return _call("required", raw) if column.gated else raw


def _worked_out(block: Block, use: Use, report: Report) -> Expr | None:
    """The value of a component whose reward function is an expression over other columns."""
    from rewardspec.language.uses import as_expression  # imports the reward functions

    assert use.reward is not None
    wrong = [part for part in ("missing", "outside") if part in block.place]
    for part in wrong:
        report.error(
            "not-measured",
            f"`{part}` needs a measured column; `{use.reward.name}` is computed from `tokens`",
            block.place[part].name,
            help=f"set `{part}` on `tokens`, under `signals:`",
        )
    return None if wrong else as_expression(use, report)


def _derived(name: str, block: Block, sources: list[str], report: Report) -> tuple[Expr | None, tuple[Stage, ...]]:
    """The value of a component with `expr` or `stages`, and its stages."""
    place = block.place
    if len(sources) == 2:
        span = place["stages"].name
        report.error("two-values", f"`{name}` has both `expr` and `stages`", span, help="keep one of them")
        return None, ()
    usable = True
    for part in _OF_COLUMNS + (() if "scale" in block else ("range",)):
        if part in place:
            inferred = ": the domain of a derived value is inferred" if part in ("values", "range") else ""
            help = f"remove `{part}`{inferred}"
            message = f"`{part}` needs a measured component; `{name}` is derived"
            report.error("not-measured", message, place[part].name, help=help)
            usable = False
    if sources == ["expr"]:
        expr = read_expression(block.one("expr"), report)
        return (expr if usable else None), ()
    written = block.stages("stages")
    if written is None:
        return None, ()
    if not written:
        report.error("no-stages", f"the list of stages of `{name}` is empty", place["stages"].name)
        return None, ()
    stages: list[Stage] = []
    for stage in written:
        add, gate = read_expression(stage.one("add"), report), read_expression(stage.one("when"), report)
        if add is None or ("when" in stage and gate is None):
            usable = False
        else:
            stages.append(Stage(add, gate))
    return (_summed(stages, block.word("squash")) if usable else None), tuple(stages)


def _summed(stages: list[Stage], squash: str) -> Expr:
    """Stages as a sum: each counts if its condition and all earlier ones are true."""
    terms: list[Expr] = []
    passed: list[Expr] = []
    for i, stage in enumerate(stages):
        add = _call(squash, stage.add) if i and squash else stage.add
        passed += [stage.when] if stage.when is not None else []
        if passed:
            gates = passed[0] if len(passed) == 1 else Operation(passed[-1].span, "and", tuple(passed))
            add = If(add.span, gates, add, Number(add.span, Fraction(0)))
        terms.append(add)
    return terms[0] if len(terms) == 1 else Operation(terms[0].span.to(terms[-1].span), "+", tuple(terms))


def _scaled(name: str, value: Expr, block: Block, use: Use | None, of_domain: Report, report: Report) -> Expr | None:
    """A value with the ends of its domain mapped to those of `scale`.

    of_domain: receives mistakes in the domain.
    """
    span = block.place["scale"].name
    ends = block.several("scale")
    assert ends is not None
    low, high = (read_expression(scalar, report) for scalar in ends)
    domain = use.domain if use is not None and use.domain is not None else read_domain(block, of_domain)
    if low is None or high is None or (domain is None and "range" in block):
        return None
    if domain is None or not domain.bounded or domain.symbols:
        report.error(
            "scale-without-range",
            f"`{name}` has no bounds, so `scale` cannot map it",
            span,
            help="declare a `range:` with two finite ends",
        )
        return None
    if domain.lo == domain.hi:
        report.error("scale-without-range", f"`{name}` has one value only, so `scale` cannot map it", span)
        return None
    known = [Number(span, Fraction(end)) for end in (domain.lo, domain.hi)]
    return _call("rescale", value, *known, low, high)


def _gated(value: Expr, block: Block, when: Expr | None, report: Report) -> Expr | None:
    if when is None:
        return None
    written = block.one("otherwise")
    otherwise: Expr | None
    if written is None:
        otherwise = Number(when.span, Fraction(0))
    elif written.text == "ignore":
        otherwise = Name(written.span, "missing")
    else:
        otherwise = read_expression(written, report)
    return None if otherwise is None else If(value.span, when, value, otherwise)
