"""Syntax trees of expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span


@dataclass(frozen=True, eq=False)
class Expr:
    """An expression, with its place in the text."""

    span: Span


@dataclass(frozen=True, eq=False)
class Number(Expr):
    """A literal."""

    value: Fraction | float  # a float only for infinity


@dataclass(frozen=True, eq=False)
class Name(Expr):
    """A name, of a value or of a function that is called."""

    text: str


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """A call: `mean(x, over=batch)`."""

    function: Name
    arguments: tuple[Expr, ...]
    keywords: tuple[tuple[Name, Expr], ...] = ()


@dataclass(frozen=True, eq=False)
class Operation(Expr):
    """An operator applied to its operands: `+ - * / **`, a comparison, `and or not`, `neg`."""

    operator: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class If(Expr):
    """A choice: `then if condition else otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, eq=False)
class Signature:
    """The left side of a definition: `zscore(x, over=group)`, or a name alone."""

    span: Span
    name: str
    parameters: tuple[tuple[str, Expr | None], ...] | None  # None: a value, not a function


def meaning(expr: Expr) -> object:
    """An expression without its places, for comparison: equal for equal trees."""
    match expr:
        case Number(value=value):
            return value
        case Name(text=text):
            return text
        case Call(function=function, arguments=arguments, keywords=keywords):
            named = tuple((name.text, meaning(value)) for name, value in keywords)
            return ("call", function.text, tuple(map(meaning, arguments)), named)
        case Operation(operator=operator, operands=operands):
            return (operator, *map(meaning, operands))
        case If(condition=condition, then=then, otherwise=otherwise):
            return ("if", meaning(condition), meaning(then), meaning(otherwise))
    raise AssertionError(f"no meaning of {expr!r}")


def precedence(expr: Expr) -> int:
    """How tightly an expression binds: 0 for `if`, 9 for names and calls."""
    match expr:
        case If():
            return 0
        case Operation(operator=operator):
            return _PRECEDENCE[operator]
        case Number(value=value) if value < 0:
            return _PRECEDENCE["neg"]
        case _:
            return 9


_PRECEDENCE = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "neg": 7, "**": 8}
_PRECEDENCE |= {op: 4 for op in ("<", "<=", ">", ">=", "==", "!=")}


def format_expr(expr: Expr, number: Callable[[Number], str] = lambda n: format_number(n.value)) -> str:
    """The expression as text, without redundant parentheses; parsing it gives the same tree.

    number: the text of a number.
    """

    def within(part: Expr, least: int) -> str:
        text = format_expr(part, number)
        return f"({text})" if precedence(part) < least else text

    match expr:
        case Number():
            return number(expr)
        case Name():
            return expr.text
        case Call():
            parts = [format_expr(a, number) for a in expr.arguments]
            parts += [f"{name.text}={format_expr(value, number)}" for name, value in expr.keywords]
            return f"{expr.function.text}({', '.join(parts)})"
        case If():
            condition, then = within(expr.condition, 1), within(expr.then, 1)
            return f"{then} if {condition} else {format_expr(expr.otherwise, number)}"
        case Operation(operator="neg", operands=(x,)):
            return f"-{within(x, 7)}"
        case Operation(operator="not", operands=(x,)):
            return f"not {within(x, 3)}"
        case Operation(operator="**", operands=(x, y)):
            return f"{within(x, 9)} ** {within(y, 7)}"
        case Operation(operator=operator, operands=operands):
            own = _PRECEDENCE[operator]
            texts = [within(operands[0], own + (own == 4))] + [within(x, own + 1) for x in operands[1:]]
            return f" {operator} ".join(texts)
    raise AssertionError(f"no text for {expr!r}")
