"""Groups of one rollout, and an advantage that compares within groups.

One rollout has no other to be compared with: its deviation from the mean of its group is 0, and what is done over
the batch afterwards (`gdpo`, `batch_grpo`, `reinforce_baseline`) works on zeros. Found by
`rewardspec check SPEC -g 1`; groups of one also come of `num_generations: 1`, of prompts that are not repeated, and
of group ids that differ by rollout. R1-V#67 and trl#3991 are wrong group layouts.

```yaml
components: {correct: {values: [0, 1]}}
advantage: batch_grpo
```

Sample several rollouts a prompt, or compare with the batch: `zscore(total, over=batch)`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.scattered import scattered
from rewardspec.text.diagnostics import Diagnostic


@finding("group-of-one", __doc__, of_spec=True)
def group_of_one(facts: Facts) -> Iterator[Diagnostic]:
    if 1 not in facts.run.sizes or facts.looks_at_batch:  # what is compared with the batch is no matter of groups
        return
    groups, _ = facts.question.groups(1, 0)
    alone = [((row,), *rest) for members, *rest in scattered(facts) for row in members]
    found = [facts.groups.advantages(group) for group in [*groups, *alone]]
    if all(values == [0] for values in found):
        yield facts.warn(
            "group-of-one",
            "in groups of one no rollout has an advantage",
            facts.advantage_place(),
            note="compares within groups",
            help="sample several rollouts a prompt, or compare with the batch: `zscore(total, over=batch)`",
        )
