"""One missing value makes an advantage undefined, which raises an error.

The spec allows a value to be missing (`missing: ignore`) and then uses it outside of any reduction. The result is
missing too. If something else was measured of that rollout, a missing advantage raises an error. Training stops at the
first rollout for which the judge did not answer. In a list it is the value of one item.

```yaml
components:
  correct: {values: [0, 1]}
  judge: {range: [0, 1], missing: ignore}
advantage: center(correct) + judge - 1/2
```

Give it a value: `coalesce(judge, mean(judge), 0)`. Or use functions and schemes that skip missing values
(`center(judge)`, `grpo`, `gdpo`).

In ms-swift#8123 one None silently made the advantages of a whole batch NaN; the error here is raised instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.missing import cause, measured_without_advantage, missing_place, spoilt_groups, with_and_without
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic


@finding("missing-ends-run", __doc__)
def missing_ends_run(facts: Facts) -> Iterator[Diagnostic]:
    for name, group, spoilt in spoilt_groups(facts, "missing-ends-run"):
        before, after = facts.groups.advantages(group), facts.groups.advantages(spoilt)
        if before is None or after is None or None in flat(before) or None not in flat(after):
            continue
        if measured_without_advantage(facts, spoilt, after):
            yield facts.warn(
                "missing-ends-run",
                f"one missing `{name}` makes an advantage undefined, which raises: "
                + with_and_without(facts, group, spoilt, before, after),
                missing_place(facts, name),
                labels=(cause(facts, False),),
                note="missing values allowed here",
                help=f"give it a value, `coalesce({name}, mean({name}), 0)`, or use a scheme such as "
                f"`{'grpo' if facts.is_summed else 'decoupled'}`",
            )
            return
