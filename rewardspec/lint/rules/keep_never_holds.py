"""A `keep` that no group satisfies.

Groups that `keep` drops have advantage 0, and the declared domains allow no group that it keeps. So nothing is learnt,
and the loss is 0 from the first step.

```yaml
components: {correct: {values: [0, 1]}}
keep: mean(correct) > 1                          # meant: mean(correct) < 1
advantage: grpo
```

Write the threshold on the declared scale: `keep: 0 < mean(correct) and mean(correct) < 1`.

It follows from the declared domains.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic


@finding("keep-never-holds", __doc__, of_spec=True)
def keep_never_holds(facts: Facts) -> Iterator[Diagnostic]:
    keep = facts.program.keep
    if keep is not None and (keep.constant == 0 or keep.domain.constant == 0):
        yield facts.warn(
            "keep-never-holds",
            "no group is ever kept, so every advantage is 0",
            facts.declared.place.of("keep"),
            note="never true",
            help="write the threshold on the declared scale",
        )
