"""Expressions and numbers in YAML scalars."""

from __future__ import annotations

from fractions import Fraction

from rewardspec.syntax.expression import parse_expression
from rewardspec.syntax.tree import Expr, Name, Number, Operation
from rewardspec.syntax.yaml import Scalar, comment_after
from rewardspec.text.diagnostics import Label, Report, shorten


def read_expression(scalar: Scalar | None, report: Report, allow_empty: bool = False) -> Expr | None:
    """The tree of the expression in a scalar; None, with the reason reported, if it does not parse."""
    if scalar is None or scalar.cut:
        return None
    piece = scalar.slice()
    source = scalar.span.source
    if piece is None:
        text, at = scalar.text, lambda start, end: scalar.span
    else:
        text, offset = piece
        at = lambda start, end: source.span(offset + start, offset + end)  # noqa: E731
    before = len(report.diagnostics)
    expr = parse_expression(text, at, report)
    comment = comment_after(scalar.span) if expr is None and scalar.style is None else None
    if comment is not None and "too early" in report.diagnostics[-1].message:
        del report.diagnostics[before:]
        report.error(
            "yaml-comment",
            "` #` begins a YAML comment, which cuts the expression short",
            comment,
            labels=(Label(scalar.span, "the expression that is left"),),
            help="move the comment to a separate line",
        )
    return expr


def read_literal(scalar: Scalar, report: Report) -> Fraction | float | str | None:
    """A number, also as constant arithmetic such as `1/3`, or a name; None, with the reason reported, for the rest."""
    expr = read_expression(scalar, report)
    if expr is None:
        return None
    if isinstance(expr, Name):
        return expr.text
    value = constant(expr)
    if value is None:
        report.error(
            "not-a-constant",
            f"`{shorten(scalar.text)}` is not a number",
            scalar.span,
            help="write it as `0.5` or `1/3`",
        )
    return value


def constant(expr: Expr) -> Fraction | float | None:
    match expr:
        case Number(value=value):
            return value
        case Operation(operator="neg", operands=(x,)):
            inner = constant(x)
            return None if inner is None else -inner
        case Operation(operator="/", operands=(x, y)):
            above, below = constant(x), constant(y)
            if isinstance(above, Fraction) and isinstance(below, Fraction) and below:
                return above / below
    return None
