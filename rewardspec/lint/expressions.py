"""The parts of a spec's own expressions, and the names in them."""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.language.declarations import Declarations
from rewardspec.language.prelude import prelude
from rewardspec.syntax.tree import Call, Expr, If, Name, Operation
from rewardspec.text.source import Span


def parts(expr: Expr) -> Iterator[Expr]:
    """An expression and all its subexpressions."""
    yield expr
    match expr:
        case Call():
            inner = [*expr.arguments, *(value for _, value in expr.keywords)]
        case Operation():
            inner = list(expr.operands)
        case If():
            inner = [expr.condition, expr.then, expr.otherwise]
        case _:
            inner = []
    for part in inner:
        yield from parts(part)


def names_of(declared: Declarations, expr: Expr) -> set[str]:
    """The names in an expression, with the names of definitions expanded."""
    found: set[str] = set()
    queue, seen = [expr], set()
    while queue:
        for part in parts(queue.pop()):
            if not isinstance(part, Name) or part.text in seen:
                continue
            seen.add(part.text)
            definition = declared.values.get(part.text)
            if definition is not None and definition.body is not None:
                queue.append(definition.body)
            else:
                found.add(part.text)
    return found


def own_expressions(declared: Declarations) -> Iterator[tuple[Expr, Expr]]:
    """(a whole expression of the spec's own text, each of its parts), without functions with parameters."""
    wholes = [expr for c in declared.components.values() for expr in (c.when, c.value, c.weight)]
    wholes += [definition.body for definition in declared.values.values()]
    wholes += [state.update for state in declared.states.values()]
    wholes += [declared.keep, declared.refill, declared.advantage]
    seen: set[tuple[Span, type]] = set()
    for whole in (expr for expr in wholes if expr is not None):
        for part in parts(whole):
            if part.span.source is declared.source and (part.span, type(part)) not in seen:
                seen.add((part.span, type(part)))
                yield whole, part


def reads_weights(declared: Declarations) -> bool:
    """Whether the advantage, `keep` or `refill` reads `weights`, also through definitions."""
    shipped = prelude(declared.dialect)
    queue = [(expr, False) for expr in (declared.advantage, declared.keep, declared.refill) if expr is not None]
    seen: set[tuple[str, bool, bool]] = set()
    while queue:
        expr, inside = queue.pop()
        for part in parts(expr):
            called = isinstance(part, Call)
            name = part.function.text if isinstance(part, Call) else part.text if isinstance(part, Name) else None
            if name is None or (name, called, inside) in seen:
                continue
            if name == "weights" and not called:
                return True
            seen.add((name, called, inside))
            if (
                not called
                and not inside
                and (name in declared.components or name in declared.columns or name in declared.states)
            ):
                continue
            own = {} if inside else declared.functions if called else declared.values
            found = own.get(name) or (shipped.functions if called else shipped.values).get(name)
            if found is not None and found.body is not None:
                queue.append((found.body, found.prelude))
    return False
