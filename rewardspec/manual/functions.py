"""Pages of the language's own functions, from their declarations in `ops/`."""

from __future__ import annotations

from rewardspec.manual.page import Kind, Page, listed, paragraphs, sentence
from rewardspec.ops.functions import FUNCTIONS as DECLARED
from rewardspec.ops.operators import OPERATORS, REDUCTIONS, SCANS
from rewardspec.ops.reductions import ARGUMENTS

_OF_EXAMPLES = "In `[ ]` is a value for each rollout, with `|` between groups."


def _function(name: str) -> Page:
    function = DECLARED[name]
    operator = OPERATORS.get(name)
    undefined = None
    if operator is not None and operator.undefined is not None:
        undefined = f"A rollout where it is evaluated and {operator.undefined.words} ends the call with an error."
        if operator.undefined.words != "missing":
            undefined = (
                f"Evaluated at {operator.undefined.words}, it ends the call with an error that names the rollout."
            )
    body = paragraphs(
        sentence(function.about),
        f"    {function.signature(name)}",
        function.example and f"`{function.example}`. {_OF_EXAMPLES if '|' in function.example else ''}".strip(),
        _of_kind(name),
        listed({key: about for key, about in ARGUMENTS.items() if key in function.keywords}),
        undefined,
    )
    return Page("function", name, body)


def _of_kind(name: str) -> str | None:
    """What every function of its kind does."""
    if name in REDUCTIONS:
        one = "a value for each rollout" if REDUCTIONS[name].keeps_level else "one value for each group"
        empty = " Of no values it is missing." if REDUCTIONS[name].missing_when_empty else ""
        return f"It reduces many values: {one}, or over the batch. Missing values take no part.{empty}"
    if name in SCANS:
        return "It gives a value for each item of an ordered list (`lists: {turn: {ordered: true}}`)."
    return None


FUNCTIONS = Kind("function", "what expressions can call", lambda: [*DECLARED], _function)
