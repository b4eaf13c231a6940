"""The comments that an emitted module opens with: what it computes, and where that is from."""

from __future__ import annotations

from textwrap import wrap

from rewardspec.language.declarations import Component, Declarations
from rewardspec.syntax.tree import Call, Expr, format_expr
from rewardspec.text.diagnostics import shorten

WIDTH = 98
MOST_LINES = 20  # of what the spec says about itself, and of its rewards


def heading(declared: Declarations, name: str, fingerprint: str, version: str) -> list[str]:
    """The lines of the heading, in ASCII: name, purpose and source, the rewards and the advantage, the compiler."""
    said = [line for text in (declared.about, declared.origin) for line in wrap(text or "", WIDTH)]
    lines = [" ".join(name.split())[:WIDTH] or "advantages", *said[:MOST_LINES], *_computes(declared)]
    under = f", with the numbers of {declared.dialect}" if declared.dialect is not None else ""
    lines.append(f"Compiled by rewardspec {version} from a spec with fingerprint {fingerprint}{under}.")
    lines.append("It needs torch alone.")
    return [_ascii(line) for line in lines]


def _computes(declared: Declarations) -> list[str]:
    """The advantage and the rewards as the spec writes them."""
    components = [_reward(name, component) for name, component in declared.components.items()]
    more = len(components) - MOST_LINES
    lines = ["Rewards:", *(f"  {line}" for line in components[:MOST_LINES])]
    lines += [f"  and {more} more"] if more > 0 else []
    lines += [f"State {name}: then {_text(state.update)}" for name, state in declared.states.items()]
    lines += [f"Kept are groups where {_text(declared.keep)}"] if declared.keep is not None else []
    lines += [f"Others are refilled by {_text(declared.refill)}"] if declared.refill is not None else []
    lines.append(f"Advantage: {_text(declared.advantage)}")
    own = [*declared.values.values(), *declared.functions.values()]
    lines += [f"  {one.signature.span.text} = {_text(one.body)}" for one in own[:MOST_LINES]]
    return lines


def _reward(name: str, component: Component) -> str:
    value, weight = _text(component.value), _text(component.weight)
    measured = isinstance(component.value, Call) and value == f"raw({name})"
    return name + ("" if measured else f": {value}") + ("" if weight == "1" else f", weight {weight}")


def _text(expr: Expr | None) -> str:
    return "" if expr is None else shorten(format_expr(expr), WIDTH - 18)


def _ascii(text: str) -> str:
    return "".join(c if ord(c) < 128 else "?" for c in text)
