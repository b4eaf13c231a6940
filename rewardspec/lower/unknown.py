"""The known names, and the diagnostics about unknown ones."""

from __future__ import annotations

from rewardspec.language.declarations import AXES, GIVEN, Definition
from rewardspec.lower.context import Context
from rewardspec.lower.values import Scope
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.syntax.foreign import NAMES, help_for
from rewardspec.syntax.tree import Call, Expr, If, Name, Operation
from rewardspec.text.diagnostics import shorten


def knows(ctx: Context, name: str) -> bool:
    """Whether a spec can use the name as a value."""
    return name in known_names(ctx, ctx.user)


def known_names(ctx: Context, scope: Scope) -> list[str]:
    """The names of all values in a scope."""
    own = (
        []
        if scope.prelude
        else [
            *ctx.declared.values,
            *ctx.declared.columns,
            *ctx.declared.components,
            *ctx.declared.states,
            *ctx.declared.damaged,
        ]
    )
    extra = ["advantage"] if ctx.advantage is not None else []
    of_lists = ["position", "rollout"] if ctx.declared.lists else []
    return [*scope.parameters, *own, *ctx.prelude.values, *GIVEN, *of_lists, *extra]


def is_symbol(ctx: Context, text: str) -> bool:
    """Whether a name is a value of some column, such as `math` in `task: {values: [math, code]}`."""
    return any(text in (column.domain.symbols or ()) for column in ctx.declared.columns.values())


def function_named(ctx: Context, name: str, scope: Scope) -> Definition | None:
    """The definition with parameters that has this name, the spec's before the prelude's."""
    if not scope.prelude and name in ctx.declared.functions:
        return ctx.declared.functions[name]
    return ctx.prelude.functions.get(name)


def unknown(ctx: Context, expr: Name, scope: Scope) -> None:
    """Report an unknown name."""
    name = expr.text
    known = known_names(ctx, scope)
    help = None
    if name.lower() in ("yes", "no", "true", "false", "on", "off"):
        help = f"`{name}` is a name here: write 1 or 0"
    elif name.lower() in ("none", "null", "nan"):
        help = "write `missing`"
    elif name == "advantage":
        help = "use `advantage` in `guarantees:` only"
    elif name in FUNCTIONS:
        help = f"it is a function: write `{FUNCTIONS[name].signature(name)}`"
    elif (definition := function_named(ctx, name, scope)) is not None:
        help = f"it is a function: write `{definition.signature.span.text}`"
    else:
        help = help_for(name, known, NAMES)
    if help is None:
        own = dict.fromkeys((*ctx.declared.columns, *ctx.declared.components))
        shown = ", ".join(f"`{name}`" for name in own)
        help = f"declare it under `signals:` or `define:`; the spec has {shown}" if own else None
    ctx.report.error("unknown-name", f"unknown name `{shorten(name)}`", ctx.site or expr.span, help=help)


def unknown_function(ctx: Context, name: Name, scope: Scope) -> None:
    """Report an unknown function."""
    if not scope.prelude and name.text in ctx.declared.damaged:
        return  # its definition is wrong: reported already
    known = [*FUNCTIONS, *ctx.prelude.functions, *([] if scope.prelude else ctx.declared.functions)]
    help = help_for(name.text, known, NAMES)
    if knows(ctx, name.text) or name.text in scope.parameters:
        help = f"write `{name.text}` without arguments: it is a value"
    ctx.report.error("unknown-function", f"unknown function `{shorten(name.text)}`", name.span, help=help)


def names_in(ctx: Context, expr: Expr, parameters: frozenset[str], scope: Scope) -> None:
    """Report every unknown name and function of an expression."""
    match expr:
        case Name(text=text):
            if text not in parameters and text not in AXES and not knows(ctx, text) and not is_symbol(ctx, text):
                unknown(ctx, expr, scope)
        case Call():
            if function_named(ctx, expr.function.text, scope) is None and expr.function.text not in FUNCTIONS:
                unknown_function(ctx, expr.function, scope)
            lists = ctx.declared.lists if expr.function.text == "position" else {}
            for argument in (*expr.arguments, *(value for _, value in expr.keywords)):
                if isinstance(argument, Name) and argument.text in lists:
                    continue
                names_in(ctx, argument, parameters, scope)
        case Operation(operands=operands):
            for operand in operands:
                names_in(ctx, operand, parameters, scope)
        case If():
            for part in (expr.condition, expr.then, expr.otherwise):
                names_in(ctx, part, parameters, scope)
