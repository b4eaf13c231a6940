"""One component counts a missing value as 0, another leaves it out.

A rollout for which neither was measured is then normal for one part of its advantage and absent from the other.
Which of the two is meant is hard to tell from the result. ms-swift#8123 and trl#5773 are about what a None should
be.

```yaml
components:
  tests: {range: [0, 1], missing: zero}
  judge: {range: [0, 1], missing: ignore}
advantage: grpo
```

Use one policy (`missing: ignore`), or say why not:
`allow: {policies-disagree: tests that did not run have failed}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.missing import missing_place
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("policies-disagree", __doc__)
def policies_disagree(facts: Facts) -> Iterator[Diagnostic]:
    first: dict[str, tuple[str, str]] = {}  # policy: component, column
    for name in facts.declared.components:
        for column in _columns(facts, name):
            policy = facts.declared.columns[column].missing
            if policy != "error":
                first.setdefault(policy, (name, column))
    if len(first) < 2 or first["zero"][1] == first["ignore"][1]:
        return
    (zero, zero_column), (ignore, ignore_column) = first["zero"], first["ignore"]
    yield facts.warn(
        "policies-disagree",
        f"a missing {_said(zero, zero_column)} counts 0, a missing {_said(ignore, ignore_column)} is left out",
        missing_place(facts, ignore_column),
        labels=(Label(missing_place(facts, zero_column), "counts 0"),),
        help="use one policy for both, or `allow: {policies-disagree: why}`",
    )


def _columns(facts: Facts, component: str) -> list[str]:
    """The columns whose values a component is made of; those that only gates read are none."""
    if component in facts.declared.columns:
        return [component]
    node = facts.shaped[component]
    while node.op == "if":
        node = node.args[1]
    return [n.attributes[0] for n in walk([node]) if n.op == "column" and n.domain.symbols is None]


def _said(component: str, column: str) -> str:
    return f"`{component}`" if component == column else f"`{column}` (in `{component}`)"
