"""A scale that changes nothing.

Without its `scale` every advantage is the same: the component is normalised separately (`decoupled`, `gdpo`), and a
z-score does not depend on the scale of its input.

```yaml
components:
  format: {values: [0, 1], scale: [-2 + progress, 2 - progress]}
  correctness: {range: [-3, 3]}
advantage: gdpo                                  # ToolRL's smooth scale has no effect here
```

Use a weight (`weight: 2 - progress`), or sum before normalising (`grpo`).

With lists inside rollouts, lists of up to two items and some longer ones are tried. The message says so, unless it
follows from the formula.

It happened in UniRL#146: a scale of 15 trained like a scale of 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rewardspec.language.declarations import Component
from rewardspec.lint.changes import changes_nothing, variation
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.scattered import scattered
from rewardspec.syntax.tree import Call, Expr, If
from rewardspec.text.diagnostics import Diagnostic


@finding("scale-without-effect", __doc__)
def scale_without_effect(facts: Facts) -> Iterator[Diagnostic]:
    for name, declaration in facts.declared.components.items():
        plain = _unscaled(declaration.value) if declaration.says("scale") and declaration.value is not None else None
        if plain is None:
            continue
        without = replace(declaration, value=plain)
        known = changes_nothing(facts, name, without, "scale-without-effect")
        if known is not None:
            itself = _keeps_its_value(facts, name, without)
            yield facts.warn(
                "scale-without-effect",
                f"the scale of `{name}` changes no advantage{known}",
                facts.component_place(name, "scale"),
                note="maps every value to itself" if itself else "cancelled by the normalisation",
                help="remove it"
                if itself
                else "use a `weight`" + ", or sum before normalising (`grpo`)" * facts.is_summed,
            )


def _unscaled(expr: Expr) -> Expr | None:
    match expr:
        case Call() if expr.function.text == "rescale":
            return expr.arguments[0]
        case If():
            then = _unscaled(expr.then)
            return None if then is None else If(expr.span, expr.condition, then, expr.otherwise)
    return None


def _keeps_its_value(facts: Facts, name: str, changed: Component) -> bool:
    """Whether another declaration of a component gives the same values in all groups of `scattered`."""
    other = variation(facts.spec, name, changed)
    if other is None:
        return False
    theirs = Facts(other)
    node = next(c.shaped for c in theirs.question.program.components if c.name == name)
    for group in scattered(facts):
        own = facts.groups.shaped(name, group)
        if own is None or own != facts.groups.elsewhere(theirs.groups, group, of=node):
            return False
    return True
