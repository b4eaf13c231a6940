"""The declarations that differ between two specs: columns with their domains, and expressions."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.language.declarations import Column, State
from rewardspec.spec import Spec
from rewardspec.syntax.tree import format_expr
from rewardspec.text.numbers import format_number


@dataclass(frozen=True)
class Change:
    """One declaration that differs, as text; None where a spec does not have it."""

    what: str
    before: str | None
    after: str | None


def changes(before: Spec, after: Spec) -> list[Change]:
    """The declarations that differ between two specs."""
    a, b = _declared(before), _declared(after)
    found = [Change(key, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)]
    if not found and before.fingerprint != after.fingerprint:  # `_declared` may miss one
        found.append(Change("fingerprint", before.fingerprint, after.fingerprint))
    return found


def _declared(spec: Spec) -> dict[str, str]:
    """The declarations of a spec as text, by place."""
    declared = spec.declarations
    found = {f"column {c.name}": _column(c) for c in declared.columns.values()}
    found |= {f"list {name}": "ordered" if of.ordered else "not ordered" for name, of in declared.lists.items()}
    found |= {f"reward function of {name}": str(use) for name, use in declared.uses.items()}
    for name, component in declared.components.items():
        found |= {
            place: format_expr(expr)
            for place, expr in ((f"component {name}", component.value), (f"weight of {name}", component.weight))
            if expr is not None
        }
    found |= {d.signature.span.text: format_expr(d.body) for d in declared.values.values() if d.body is not None}
    found |= {d.signature.span.text: format_expr(d.body) for d in declared.functions.values() if d.body is not None}
    found |= {f"state {s.name}": _state(s) for s in declared.states.values()}
    for key in ("outcome", "keep", "refill", "advantage"):
        expr = getattr(declared, key)
        if expr is not None:
            found[key] = format_expr(expr)
    found |= {"eps": str(float(declared.eps)), "ddof": str(declared.ddof)}
    found |= {f"guarantee {name}": format_expr(expr) for name, expr in declared.guarantees.items()}
    tokens = declared.reward_tokens
    if tokens is not None:
        found["condition"] = f"{tokens.tokens} {tokens.prior} {tokens.template}"
        found |= {f"label {name}": format_expr(expr) for name, expr in tokens.labels.items()}
    return found


def _state(state: State) -> str:
    """A state's first value, range, keys and update."""
    keys = [] if state.by is None else [f"by: {state.by}", f"most: {state.most}"]
    first = [f"init: {format_number(state.init)}", f"range: {state.column.domain}", *keys]
    return ", ".join([*first, f"update: {format_expr(state.update)}"])


def _column(column: Column) -> str:
    """A column's level and domain, and how missing values and values outside the domain are treated."""
    words = [f"{column.level} {column.domain}", f"missing: {column.missing}"]
    return ", ".join([*words, *(["outside: clip"] if column.clip else [])])
