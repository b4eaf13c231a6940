"""One missing value makes its whole group dead.

If the value is missing for one rollout, all advantages of its group are 0, although the other rollouts differ and
could be learnt from. If a judge fails once in a hundred calls, that costs one in seven groups of 16.

```yaml
components:
  correct: {values: [0, 1]}
  judge: {range: [0, 1], missing: ignore}
keep: all(present(judge))
advantage: grpo
```

Leave missing values to the reductions, which skip them. If the group has to be complete, give a reason:
`allow: {missing-silences-group: why}`.

In ms-swift#8123 and trl#5773 one None spoils a group or a batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.question import Group
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.missing import cause, missing_place, spoilt_groups, with_and_without
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic


@finding("missing-silences-group", __doc__)
def missing_silences_group(facts: Facts) -> Iterator[Diagnostic]:
    for name, group, spoilt in spoilt_groups(facts, "missing-silences-group"):
        before, after = facts.groups.advantages(group), facts.groups.advantages(spoilt)
        if before is None or after is None or None in flat(before) or any(a is None or a != 0 for a in flat(after)):
            continue
        members, columns, moment = spoilt
        at = next(i for i, row in enumerate(members) if row != group[0][i])
        rest = facts.groups.advantages(Group(members[:at] + members[at + 1 :], columns, moment))
        if rest is not None and None not in flat(rest) and any(flat(before)) and len({*flat(rest)}) > 1:
            kept = facts.question.program.keep
            is_dropped = kept is not None and (facts.groups.values(kept, spoilt) or [1])[0] != 1
            yield facts.warn(
                "missing-silences-group",
                f"one missing `{name}` makes its whole group dead: "
                + with_and_without(facts, group, spoilt, before, after),
                missing_place(facts, name),
                labels=(cause(facts, is_dropped),),
                help="leave it to the reductions and schemes, which skip missing values, or give a reason: "
                "`allow: {missing-silences-group: why}`",
            )
            return
