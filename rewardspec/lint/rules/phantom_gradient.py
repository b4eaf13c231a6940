"""Groups in which every answer is wrong still have a gradient.

Where all rollouts of a prompt fail, nothing says which way is better; yet a shaping term tells them apart, and that
is what is learnt: to be wrong in a better format. verl-recipe#125 measured 0.04 to 0.10 with it against 0.75 with
the term gated on the outcome.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1]}
advantage: grpo
```

Gate the other components (`when: correct >= 1`), or leave such groups out (`keep: any(correct)`). Early in training
a format reward may be meant to teach just this: then `allow: {phantom-gradient: why}`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.paid import gate_rest_help, pays
from rewardspec.lint.registry import finding
from rewardspec.lint.right_and_wrong import groups_with_outcome, right_in
from rewardspec.lint.small_groups import Group
from rewardspec.lint.table import table
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number


@finding("phantom-gradient", __doc__, of_spec=True)
def phantom_gradient(facts: Facts) -> Iterator[Diagnostic]:
    for group, advantages in groups_with_outcome(facts, "phantom-gradient"):
        if len(set(advantages)) > 1 and _is_all_wrong(facts, group):
            outcome = facts.outcome
            assert outcome is not None, "these groups have one"
            failed = f"`{outcome.condition}` holds for none"
            if outcome.is_binary and outcome.component is not None:
                failed = f"every `{outcome.component}` is {format_number(facts.shaped[outcome.component].domain.lo)}"
            yield facts.warn(
                "phantom-gradient",
                f"groups in which {failed} still have a gradient: {table(facts, group, advantages)}",
                facts.advantage_place(),
                help=f"{gate_rest_help(facts)}, or leave such groups out: "
                + (f"`keep: {outcome.any}`" if facts.program.keep is None else f"`and {outcome.any}` in `keep`"),
            )
            return


def _is_all_wrong(facts: Facts, group: Group) -> bool:
    """Whether all rollouts are wrong, and alike in all that says so and in all penalties."""
    right = right_in(facts, group)
    if right is None or any(r is not False for r in right):
        return False
    truth = facts.question.program.outcome
    assert truth is not None, "these groups have one"
    reads = {n for n in walk([truth.holds, truth.fails]) if n.op == "column"}
    if any(len({row[at] for row in group[0]}) > 1 for at, n in enumerate(facts.question.fine) if n in reads):
        return False
    penalties = [name for name in facts.shaped if not pays(facts, name)]
    return all((values := facts.groups.shaped(name, group)) is not None and len(set(values)) == 1 for name in penalties)
