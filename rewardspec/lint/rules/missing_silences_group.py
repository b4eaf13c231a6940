"""One missing value takes the advantage of a whole group.

A value may be missing, and where it is for one rollout, all of its group have advantage 0, though the others
alone differ and would be learnt from. A judge that times out once in a hundred calls then costs one in seven
groups of 16. ms-swift#8123 and trl#5773 are about one None that spoils a group or a batch.

```yaml
components:
  correct: {values: [0, 1]}
  judge: {range: [0, 1], missing: ignore}
keep: all(present(judge))
advantage: grpo
```

Leave it to the reductions: what is missing takes no part in them. Where the group has to be complete,
`allow: {missing-silences-group: why}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import Facts
from rewardspec.lint.missing import culprit, missing_place, spoilt_groups, told
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic


@finding("missing-silences-group", __doc__)
def missing_silences_group(facts: Facts) -> Iterator[Diagnostic]:
    for name, group, spoilt in spoilt_groups(facts, "missing-silences-group"):
        before, after = facts.groups.advantages(group), facts.groups.advantages(spoilt)
        if before is None or after is None or None in before or any(a is None or a != 0 for a in after):
            continue
        members, columns, moment = spoilt
        at = next(i for i, row in enumerate(members) if row != group[0][i])
        rest = facts.groups.advantages((members[:at] + members[at + 1 :], columns, moment))
        if rest is not None and None not in rest and any(before) and len(set(rest)) > 1:
            kept = facts.question.program.keep
            is_dropped = kept is not None and (facts.groups.values(kept, spoilt) or [1])[0] != 1
            yield facts.warn(
                "missing-silences-group",
                f"one missing `{name}` silences its group: {told(facts, group, spoilt, before, after)}",
                missing_place(facts, name),
                labels=(culprit(facts, is_dropped),),
                help="let it take no part, as in the reductions and the ready-made schemes, or say why it has to: "
                "`allow: {missing-silences-group: why}`",
            )
            return
