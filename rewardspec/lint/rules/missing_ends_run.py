"""One missing value makes the advantage missing, which is an error when it runs.

The spec lets a value be missing (`missing: ignore`) and then computes with it outside of any reduction. What is
computed from something missing is missing, and a missing advantage, where something was measured, ends the call:
training stops at the first rollout for which the judge did not answer. In ms-swift#8123 one None made the
advantages of a whole batch NaN, in silence; an error is what there is in place of that.

```yaml
components:
  correct: {values: [0, 1]}
  judge: {range: [0, 1], missing: ignore}
advantage: center(correct) + judge - 1/2
```

Say what stands for it: `coalesce(judge, mean(judge), 0)`; or use what knows (`center(judge)`, `grpo`, `gdpo`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.missing import culprit, measured_without_advantage, missing_place, spoilt_groups, told
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic


@finding("missing-ends-run", __doc__)
def missing_ends_run(facts: Facts) -> Iterator[Diagnostic]:
    for name, group, spoilt in spoilt_groups(facts, "missing-ends-run"):
        before, after = facts.groups.advantages(group), facts.groups.advantages(spoilt)
        if before is None or after is None or None in before or None not in after:
            continue
        if measured_without_advantage(facts, spoilt, after):
            yield facts.warn(
                "missing-ends-run",
                f"one missing `{name}` ends the run: {told(facts, group, spoilt, before, after)}",
                missing_place(facts, name),
                labels=(culprit(facts, False),),
                note="allowed here",
                help=f"say what stands for it, `coalesce({name}, mean({name}), 0)`, or use a scheme such as `grpo`",
            )
            return
