"""Most groups are dead at the given success rate.

If all rollouts of a prompt succeed, or all fail, their advantages are 0: the rollouts cost compute and teach nothing.
With one binary reward, success rate p and groups of G, the share of dead groups is p^G + (1 - p)^G. At p = 0.05 and
G = 8 that is 66%.

The check needs a success rate and a group size: `rewardspec check SPEC --p correct=0.05 -g 8`. Values without a rate
are taken to be equally frequent. So are all lengths of a list, of up to two items: `--items 4` for up to four.

```yaml
components: {correct: {values: [0, 1]}}
advantage: grpo
```

Use larger groups, easier prompts or partial credit (`values: [0, 0.5, 1]`), or draw more groups in place of dead ones
(`keep:` and `refill:`). `rewardspec simulate SPEC --p correct=0.05 -g 8,16,32` shows how far each helps.

It happened in trl#3857, ROLL#397 and gem#113, which are runs at loss 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rewardspec.groups.points import Point, PolicyModel
from rewardspec.groups.rates import policy
from rewardspec.groups.states import Rollouts, States, find_states
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import walk
from rewardspec.lint.cases import MOST_CASES, joint_cases
from rewardspec.lint.facts import NO_LENGTH, OF_BATCH, Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.text.diagnostics import Diagnostic, Label

MOSTLY = 0.5  # of groups that are dead
MOST_ROLLOUTS = 64  # in the largest group that the help proposes
MOST_VALUES = 2_000_000  # node values, over all groups that are tried
NEVER = 1e-6


@finding("dead-groups", __doc__, of_spec=True)
def dead_groups(facts: Facts) -> Iterator[Diagnostic]:
    if not facts.run.rates or facts.depends_on_batch("dead-groups"):
        return
    if facts.question.normalisation == "shift":
        facts.not_checked("dead-groups", OF_BATCH)
        return
    model = policy(facts.program, facts.run.rates, facts.run.items)
    facts = facts.with_eps if facts.divides_by_eps else facts
    read = {n.attributes[0] for n in walk([facts.question.root]) if n.op == "given"}
    if "total_steps" in read and facts.run.total_steps is None:
        facts.not_checked("dead-groups", NO_LENGTH)
        return
    for size, share, is_all in _dead_shares(facts, model):
        if not share > MOSTLY:
            continue
        rates = ", ".join(f"{name}={float(rate):g}" for name, rate in facts.run.rates.items())
        larger = ",".join(str(n) for n in (size, 2 * size, 4 * size) if n <= MOST_ROLLOUTS)
        places = [facts.component_place(name) for name in facts.run.rates if name in facts.shaped]
        many = f"{share:.0%}" if is_all else f"at least {int(100 * share)}%"
        start = ", at the first step" if read & {"step", "progress"} else ""
        yield facts.warn(
            "dead-groups",
            f"{many} of groups of {size} are dead at {rates}{start}{facts.bound}",
            facts.advantage_place(),
            labels=tuple(Label(place, "success rate given") for place in places),
            help="use larger groups, easier prompts or partial credit; compare the shares with "
            f"`rewardspec simulate SPEC --p {rates.replace(' ', '')} -g {larger}`",
        )


def _dead_shares(facts: Facts, model: PolicyModel) -> Iterator[tuple[int, float, bool]]:
    """(group size, share of dead groups, whether the share is exact) for each size, at the first step.

    If there are too many groups, only groups of equal rollouts are tried, and the share is a lower bound.
    """
    program, root = facts.question.program, facts.question.root
    total = Fraction(facts.run.total_steps or 1)
    moment = {"step": Fraction(0), "total_steps": total, "progress": Fraction(0)}
    if joint_cases(program, root, model.items) > MOST_CASES:
        facts.not_checked("dead-groups", f"there are more than {MOST_CASES} kinds of rollouts; use `simulate --p`")
        return
    if any(n.op == "column" and n.domain.ids for n in walk([root])):
        facts.not_checked("dead-groups", "how often ids are equal is not known")
        return
    states = find_states(program, [root], moment, max(facts.run.sizes, default=1), model=model)
    if not states.complete:
        facts.not_checked("dead-groups", "there are too many kinds of rollouts; use `simulate --p`, which samples them")
        return
    left = MOST_VALUES // len(walk([root]))  # rollouts
    evaluate = GroupEvaluator(root, states.start, moment)
    for size in facts.run.sizes:
        is_all = 3 * states.count(size) * size <= left
        groups = list(states.each_group(size, states.count(size)) if is_all else _equal_groups(states, size))
        left -= len(groups) * size
        if left < 0:
            facts.not_checked(
                "dead-groups", f"there are too many groups of {size}; use `simulate --p`, which samples them"
            )
            return
        if sum(mass for *_, mass in groups) > MOSTLY:
            values = ((mass, flat(evaluate(members, columns))) for members, columns, mass in groups)
            yield size, sum(mass for mass, found in values if all(v == 0 for v in found)), is_all


def _equal_groups(states: States, size: int) -> Iterator[tuple[Rollouts, dict[str, Point], float]]:
    """(rollouts, columns of the group, probability) for groups of `size` equal rollouts."""
    for columns, odds in states.groups:
        for row, mass in states.rollouts.items():
            if mass**size > NEVER:
                yield (row,) * size, columns, odds * mass**size
