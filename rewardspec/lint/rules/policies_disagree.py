"""One component counts a missing value as 0, another ignores it.

If neither value was measured for a rollout, the rollout takes part in one term of its advantage and is absent from
the other. The result does not show which of the two is meant.

```yaml
components:
  tests: {range: [0, 1], missing: zero}
  judge: {range: [0, 1], missing: ignore}
advantage: grpo
```

Use one policy (`missing: ignore`), or give a reason:
`allow: {policies-disagree: tests that did not run have failed}`.

ms-swift#8123 and trl#5773 discuss what a None should mean.
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
            policy = facts.program.column(column).missing
            if policy != "error":
                first.setdefault(policy, (name, column))
    if len(first) < 2 or first["zero"][1] == first["ignore"][1]:
        return
    (zero, zero_column), (ignore, ignore_column) = first["zero"], first["ignore"]
    yield facts.warn(
        "policies-disagree",
        f"a missing {_named(zero, zero_column)} counts as 0, a missing {_named(ignore, ignore_column)} is ignored",
        missing_place(facts, ignore_column),
        labels=(Label(missing_place(facts, zero_column), "counts as 0"),),
        help="use one policy for both, or give a reason: `allow: {policies-disagree: why}`",
    )


def _columns(facts: Facts, component: str) -> list[str]:
    """The columns that a component is computed from, without those that only its gates read."""
    if component in facts.declared.columns:
        return [component]
    node = facts.shaped[component]
    while node.op == "if":
        node = node.args[1]
    return [n.attributes[0] for n in walk([node]) if n.op == "column" and not n.domain.nominal]


def _named(component: str, column: str) -> str:
    return f"`{component}`" if component == column else f"`{column}` (in `{component}`)"
