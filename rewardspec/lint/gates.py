"""Gates: the conditions under which components count."""

from __future__ import annotations

from rewardspec.groups.blocks import lists_of
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.language.declarations import Declarations
from rewardspec.lint.expressions import names_of, parts
from rewardspec.lint.items import side_by_side
from rewardspec.lint.rollouts import some_rollouts
from rewardspec.lower.lower import Lowering
from rewardspec.lower.program import Program
from rewardspec.lower.values import Skip
from rewardspec.ops.exact import Inexact
from rewardspec.syntax.tree import Expr, If, Name, Number, Operation
from rewardspec.text.diagnostics import Report


def gates(declared: Declarations, component: str) -> list[Expr]:
    """The conditions of a component: its `when`, or those of its stages."""
    declaration = declared.components[component]
    found = [declaration.when] if declaration.when is not None else []
    if declaration.stages and declaration.value is not None:
        found += [e.condition for e in parts(declaration.value) if isinstance(e, If)]
    return found


def gate_names(declared: Declarations, component: str) -> set[str]:
    """Components and signals that the gates of a component read, also through definitions."""
    return {name for gate in gates(declared, component) for name in names_of(declared, gate)}


def counts_only_where(declared: Declarations, component: str, condition: Expr) -> bool:
    """Whether a gate of a component is open only if a condition is true."""
    lowering = Lowering(declared, Report())
    for gate in gates(declared, component):
        if not names_of(declared, condition) & names_of(declared, gate):
            continue
        try:
            nodes = [lowering.condition(e, lowering.user) for e in (gate, condition)]
            if len(lists_of(nodes)) > 1:
                continue  # items of two lists are not compared
            tried = some_rollouts(nodes)
            found = [GroupEvaluator(n, tried[0], {})(tried[1], {}) for n in nodes] if tried else [[1], [0]]
        except (Skip, Inexact):
            continue
        if all(opens == 0 or holds == 1 for opens, holds in side_by_side(*found)):
            return True
    return False


def gating(declared: Declarations, program: Program) -> set[str]:
    """The components that gate others: the others count only if it has its greatest value."""
    shaped = {component.name: component.shaped for component in program.components}
    read = {name: gate_names(declared, name) for name in shaped}
    found = set()
    for name, node in shaped.items():
        top = node.domain.hi
        others = [other for other in shaped if name in read[other] and name != other]
        if isinstance(top, float) or not others:
            continue
        span = declared.components[name].span
        has_top = Operation(span, ">=", (Name(span, name), Number(span, top)))
        if any(counts_only_where(declared, other, has_top) for other in others):
            found.add(name)
    return found
