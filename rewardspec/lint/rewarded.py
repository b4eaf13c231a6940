"""Components that reward wrong answers, and how to gate them."""

from __future__ import annotations

from math import inf

from rewardspec.ir.exact import items_of
from rewardspec.ir.graph import walk
from rewardspec.lint.expressions import names_of
from rewardspec.lint.facts import Facts, once
from rewardspec.lint.gates import gate_names
from rewardspec.lint.outcome import Outcome
from rewardspec.lint.rollouts import in_rollouts, some_rollouts
from rewardspec.text.numbers import format_number


def can_reward(facts: Facts, name: str) -> bool:
    """Whether the term of a component in a weighted sum can be positive. If not, it is a penalty."""
    weight = next(c.weight for c in facts.program.components if c.name == name).domain
    value = facts.shaped[name].domain
    return (weight.hi > 0 and value.hi > 0) or (weight.lo < 0 and value.lo < 0)


@once
def rewarded_when_wrong(facts: Facts) -> list[str]:
    """Components with a positive term in some wrong rollout, and not the same term in all of them."""
    return [name for name in facts.shaped if can_reward(facts, name) and _is_rewarded_when_wrong(facts, name)]


def _is_rewarded_when_wrong(facts: Facts, name: str) -> bool:
    program = facts.question.program
    component = next(c for c in program.components if c.name == name)
    assert program.outcome is not None, "only called if there is an outcome"
    fails = program.outcome.fails
    tried = some_rollouts([component.shaped, fails], far=True)
    if tried is not None:
        seen = [(in_rollouts(component.shaped, *tried), in_rollouts(fails, *tried))]
    else:
        groups = [group for some in facts.groups.some.values() for group in some]
        both = ((facts.groups.values(component.shaped, group), facts.groups.values(fails, group)) for group in groups)
        seen = [(own, wrong) for own, wrong in both if own is not None and wrong is not None]
    items = (items_of(v) for own, wrong in seen for v, f in zip(own, wrong, strict=True) if f == 1)
    worth = {v for values in items for v in values if v is not None}
    signs = [s for s in (1, -1) if (component.weight.domain.hi > 0 if s > 0 else component.weight.domain.lo < 0)]
    return any(max((s * v for v in worth), default=0) > 0 and len(worth) > 1 for s in signs)


def also_rewarded_when_wrong(facts: Facts, outcome: Outcome) -> list[str]:
    """Components that also reward wrong rollouts, without those that read the outcome."""
    found = []
    for name in rewarded_when_wrong(facts):
        value = facts.declared.components[name].value
        assert value is not None, "what was lowered has a value"
        reads = {n.attributes[0] for n in walk([facts.shaped[name]]) if n.op == "column"}
        named = gate_names(facts.declared, name) | reads | names_of(facts.declared, value)
        if name not in outcome.reads and not outcome.reads & named:
            found.append(name)
    return found


def gate_help(facts: Facts, name: str, outcome: Outcome) -> str:
    """How to let a component count only in right answers, as text of the language."""
    lowest, condition = facts.shaped[name].domain.lo, outcome.condition
    if any(name in _behind(facts, read) for read in outcome.reads):
        return (
            f"count `{name}` only in right answers"  # the outcome reads it, so a gate on the outcome would be a circle
        )
    if facts.declared.components[name].when is not None:
        return f"add `and {outcome.beside}` to its `when`"
    if lowest >= 0:
        return f"add `when: {condition}`"
    return f"add `when: {condition}` and `otherwise: {format_number(lowest) if lowest > -inf else 'ignore'}`"


def _behind(facts: Facts, name: str) -> set[str]:
    """A component and all components that it is computed from."""
    found: set[str] = set()
    queue = [name]
    while queue:
        name = queue.pop()
        declaration = facts.declared.components.get(name)
        if name in found or declaration is None:
            continue
        found.add(name)
        for expr in (declaration.value, declaration.when):
            queue += names_of(facts.declared, expr) if expr is not None else ()
    return found


def gate_rest_help(facts: Facts) -> str:
    """How to gate all rewards on the outcome. Penalties are not mentioned."""
    outcome = facts.outcome
    assert outcome is not None, "only called if there is an outcome"
    paid = [name for name in rewarded_when_wrong(facts) if name not in outcome.reads]
    others = [n for n, node in facts.shaped.items() if n not in outcome.reads and node.domain.constant is None]
    below = any(facts.shaped[name].domain.lo < 0 for name in paid)
    what = "the other rewards" if paid else "the other components"
    if paid and set(paid) >= set(others):
        what = "the other components"
    elif 0 < len(paid) <= 3:
        what = " and ".join(f"`{name}`" for name in paid)
    otherwise = " (and `otherwise:` for values below 0)" if below else ""
    return f"gate {what} with `when: {outcome.condition}`{otherwise}"
