"""Groups of one rollout, with an advantage that compares within groups.

One rollout has no other rollout to be compared with, so its difference from the mean of its group is 0. A
normalisation over the batch (`gdpo`, `batch_grpo`, `reinforce_baseline`) then has only zeros. The check needs the group
size: `rewardspec check SPEC -g 1`.

Groups of one come from `num_generations: 1`, from prompts that are not repeated, and from a group id that differs for
each rollout.

If items are compared with each other, a group of one rollout can be live.

```yaml
components: {correct: {values: [0, 1]}}
advantage: batch_grpo
```

Sample several rollouts per prompt, or compare with the batch: `zscore(total, over=batch)`.

It happened in R1-V#67 and trl#3991, which had wrong group ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.question import Group
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.lint.scattered import scattered
from rewardspec.lint.small_groups import MOST_SMALL_GROUPS
from rewardspec.text.diagnostics import Diagnostic


@finding("group-of-one", __doc__, of_spec=True)
def group_of_one(facts: Facts) -> Iterator[Diagnostic]:
    if 1 not in facts.run.sizes or facts.reads_batch:  # the group size does not matter to a comparison with the batch
        return
    groups, _ = facts.question.few_groups(1, MOST_SMALL_GROUPS, MOST_SMALL_GROUPS)
    alone = [Group((row,), group.columns, group.moment) for group in scattered(facts) for row in group.rollouts]
    found = [facts.groups.advantages(group) for group in [*groups, *alone]]
    if all(values is not None and all(v == 0 for v in flat(values)) for values in found):
        yield facts.warn(
            "group-of-one",
            f"in groups of one every advantage is 0{facts.bound}",
            facts.advantage_place(),
            note="compares within groups",
            help="sample several rollouts per prompt, or compare with the batch: `zscore(total, over=batch)`",
        )
