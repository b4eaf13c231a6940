"""A definition with the name of a scheme that means something else.

A name defined in the spec hides the same name of the prelude. A reader takes `advantage: grpo` for GRPO
(arXiv:2402.03300), and so does `rewardspec list`, but the spec computes something else. `total` is not warned about:
redefining it is a way to choose what is summed.

```yaml
components: {correct: {values: [0, 1]}, format: {values: [0, 1], when: correct >= 1}}
define:
  grpo: correct + format - mean(correct + format)
advantage: grpo
```

Give it another name, `summed: correct + format - mean(correct + format)`, and write `advantage: summed`.

It is a rule of this language that the nearer name counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Node
from rewardspec.language.prelude import prelude
from rewardspec.lint.expressions import own_expressions
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lower.lower import Lowering
from rewardspec.lower.values import Skip
from rewardspec.syntax.tree import Call, Name
from rewardspec.text.diagnostics import Diagnostic, Label, Report
from rewardspec.text.source import Span

_NO_SCHEMES = ("total", "measured")  # which specs redefine on purpose: `total: outcome * process`


@finding("hides-prelude", __doc__)
def hides_prelude(facts: Facts) -> Iterator[Diagnostic]:
    used = {part.text: part.span for _, part in own_expressions(facts.declared) if isinstance(part, Name)}
    called = {part.function.text: part.span for _, part in own_expressions(facts.declared) if isinstance(part, Call)}
    shipped = prelude(facts.declared.dialect)
    for name in shipped.values:
        declared = facts.declared
        own = any(name in d for d in (declared.values, declared.components, declared.columns, declared.states))
        if own and name in used and name not in _NO_SCHEMES and not _is_same(facts, name, used[name]):
            yield _hidden(facts, name, used[name])
    for name in shipped.functions:
        if name in facts.declared.functions and name in called:
            yield _hidden(facts, name, called[name])


def _is_same(facts: Facts, name: str, span: Span) -> bool:
    """Whether the spec's definition computes the same as the prelude's."""
    lowering = Lowering(facts.declared, Report())
    try:
        own, shipped = (lowering.value(Name(span, name), scope) for scope in (lowering.user, lowering.own))
    except Skip:
        return True
    return own is shipped if isinstance(own, Node) else own == shipped


def _hidden(facts: Facts, name: str, used: Span) -> Diagnostic:
    place = next(
        section[key].name
        for section in map(facts.declared.place.at, ("define", "components", "signals", "state"))
        for key in section or ()
        if section is not None and key.partition("(")[0].strip() == name
    )
    return facts.warn(
        "hides-prelude",
        f"`{name}` is defined in this spec and hides the prelude's `{name}`",
        place,
        labels=(Label(used, "uses the spec's definition"),),
        help="give it another name",
    )
