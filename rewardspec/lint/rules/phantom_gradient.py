"""Groups without a right answer can be live.

If all rollouts of a prompt are wrong, none shows which way is better. But another reward still distinguishes them, so
the policy learns from it alone: for example, to be wrong in a better format.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1]}
advantage: grpo
```

Gate the other components (`when: correct >= 1`), or drop such groups (`keep: any(correct)`). If a format reward is
meant to teach exactly this early in training, give that as a reason: `allow: {phantom-gradient: why}`.

Items count as rollouts do: a group of wrong answers is live if two of its items differ in their advantage.

verl-recipe#125 measured 0.04 to 0.10 with such a term, and 0.75 with the term gated on the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.question import Group
from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.lint.rewarded import can_reward, gate_rest_help
from rewardspec.lint.right_and_wrong import groups_with_outcome, right_in
from rewardspec.lint.table import table
from rewardspec.text.diagnostics import Diagnostic


@finding("phantom-gradient", __doc__, of_spec=True)
def phantom_gradient(facts: Facts) -> Iterator[Diagnostic]:
    outcome, shown = facts.outcome, None
    for group, advantages in groups_with_outcome(facts, "phantom-gradient"):
        if len({*flat(advantages)}) > 1 and _is_all_wrong(facts, group):
            shown = shown or (group, advantages)
            if () not in advantages:  # a plainer example than one with a rollout that has no items
                shown = group, advantages
                break
    if shown is None or outcome is None:
        return
    wrong = "without a right answer" if outcome.is_binary else f"in which `{outcome.condition}` is never true"
    yield facts.warn(
        "phantom-gradient",
        f"groups {wrong} can be live: {table(facts, *shown)}",
        facts.advantage_place(),
        help=f"{gate_rest_help(facts)}, or drop such groups: "
        + (f"`keep: {outcome.any}`" if facts.program.keep is None else f"add `and {outcome.any}` to `keep`"),
    )


def _is_all_wrong(facts: Facts, group: Group) -> bool:
    """Whether all rollouts are wrong, and equal in the columns of the outcome and in all penalties."""
    right = right_in(facts, group)
    if right is None or any(r is not False for r in right):
        return False
    truth = facts.question.program.outcome
    assert truth is not None, "these groups have one"
    reads = {n for n in walk([truth.holds, truth.fails]) if n.op == "column"}
    if any(len({row[at] for row in group[0]}) > 1 for at, n in enumerate(facts.question.fine) if n in reads):
        return False
    penalties = [name for name in facts.shaped if not can_reward(facts, name)]
    return all((values := facts.groups.shaped(name, group)) is not None and len(set(values)) == 1 for name in penalties)
