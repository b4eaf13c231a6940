"""`scale:` of a component, as the call that it expands to."""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.syntax.tree import Call, Expr, If


def scale_ends(value: Expr | None) -> tuple[Expr, ...]:
    """The two ends of a component's scale; empty without a scale."""
    call = next((call for call in _calls(value) if call.function.text == "rescale"), None)
    return () if call is None else call.arguments[3:]


def _calls(expr: Expr | None) -> Iterator[Call]:
    match expr:
        case Call():
            yield expr
            for a in expr.arguments:
                yield from _calls(a)
        case If():
            for part in (expr.then, expr.otherwise):
                yield from _calls(part)
