"""A `keep` that drops dead groups of wrong answers and keeps dead groups of right ones.

If all rollouts of a prompt succeed, the group is dead, as it is if all fail. If it is kept, it takes a place in the
batch, dilutes averages over the batch, and counts in the batch's statistics.

```yaml
components: {correct: {values: [0, 1]}}
keep: mean(correct) > 0
advantage: grpo
```

Write `keep: 0 < mean(correct) < 1`, or `keep: var(correct, ddof=0) >= 1e-6`.

DAPO (arXiv:2503.14476), Eq. 11, drops both.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.lint.facts import NO_OUTCOME, NOT_EXACT, Facts
from rewardspec.lint.items import flat
from rewardspec.lint.outcome import Outcome
from rewardspec.lint.registry import finding
from rewardspec.lint.right_and_wrong import right_in
from rewardspec.lint.table import table
from rewardspec.text.diagnostics import Diagnostic


@finding("keep-dead-groups", __doc__, of_spec=True)
def keep_dead_groups(facts: Facts) -> Iterator[Diagnostic]:
    keep, outcome = facts.question.program.keep, facts.outcome
    if keep is None or facts.program.keep is None or facts.program.keep.constant is not None:
        return
    if outcome is None:
        facts.not_checked("keep-dead-groups", NO_OUTCOME)
        return
    if facts.question.normalisation == "shift" or facts.depends_on_batch("keep-dead-groups"):
        return
    kept_dead, wrong_kept = None, False
    for group, advantages in facts.groups.each():
        right, kept = right_in(facts, group), facts.groups.values(keep, group)
        if advantages is None or right is None or kept is None or None in (*right, *flat(advantages)):
            facts.not_checked("keep-dead-groups", NOT_EXACT)
            return
        if not any(right) and kept[0] == 1:
            wrong_kept = True
        if all(right) and kept[0] == 1 and flat(advantages):
            if any(flat(advantages)):
                return  # groups of right answers are live
            kept_dead = kept_dead or (group, advantages)
    if kept_dead is not None and not wrong_kept:
        yield facts.warn(
            "keep-dead-groups",
            f"`keep` keeps dead groups in which all rollouts are right: {table(facts, *kept_dead)}",
            facts.declared.place.of("keep"),
            help=_keep_live(outcome),
        )


def _keep_live(outcome: Outcome) -> str:
    if outcome.is_condition:
        return f"drop them too: `keep: 0 < mean({outcome.component}) < 1`"
    return f"drop them too: add `and not all({outcome.condition})` to `keep`"
