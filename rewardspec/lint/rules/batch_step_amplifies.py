"""The batch's normalisation multiplies what dead groups leave.

`gdpo` divides the advantages of a batch by their standard deviation (GDPO Eq. 6). Dead groups have advantage 0 and make
it smaller, so the advantages of the other groups grow as more groups die: the step length of training changes with the
success rate, most where least is left to learn. With one binary reward, groups of 8 and a large batch, advantages are
multiplied by 1.07 at a success rate of 0.5, and by 1.8 at 0.05.

The check needs a success rate and a group size: `rewardspec check SPEC --p correct=0.05 -g 8`. It compares with a rate
of 0.5 of the same columns. `rewardspec replay` shows the factor of each step of a run.

```yaml
components: {correct: {values: [0, 1]}}
advantage: gdpo
```

Write `decoupled`, which is `gdpo` without that step: `advantage: decoupled`.

In the rollouts of `examples/trl`, replayed under GDPO, the mean |advantage| in live groups goes from 0.86 to 2.3 while
dead groups go from 5% to 88%. Replayed under GRPO it stays at 0.76.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import sqrt

from rewardspec.groups.points import PolicyModel
from rewardspec.groups.rates import policy
from rewardspec.groups.states import find_states
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import Node, walk
from rewardspec.ir.patterns import ZScore, match_zscore
from rewardspec.lint.cases import MOST_CASES, joint_cases
from rewardspec.lint.facts import NO_LENGTH, Facts
from rewardspec.lint.items import flat
from rewardspec.lint.registry import finding
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.text.diagnostics import Diagnostic

CODE = "batch-step-amplifies"
AMPLIFIES = 1.5  # times the factor at the even rate
EVEN = Fraction(1, 2)
MOST_VALUES = 400_000  # node values, over all groups that are tried


@finding("batch-step-amplifies", __doc__, of_spec=True)
def batch_step_amplifies(facts: Facts) -> Iterator[Diagnostic]:
    found = _over_batch(facts)
    if not facts.run.rates or found is None:
        return
    read = {n.attributes[0] for n in walk([found.x]) if n.op == "given"}
    if "total_steps" in read and facts.run.total_steps is None:
        facts.not_checked(CODE, NO_LENGTH)
        return
    if any(n.op == "column" and n.domain.ids for n in walk([found.x])):
        facts.not_checked(CODE, "how often ids are equal is not known")
        return
    program, rates = facts.program, facts.run.rates
    given = policy(program, rates, facts.run.items)
    even = policy(program, dict.fromkeys(rates, EVEN), facts.run.items)
    for size in facts.run.sizes:
        factors = [_factor(facts, found, model, size) for model in (given, even)]
        if None in factors:
            facts.not_checked(CODE, f"there are too many groups of {size}")
            return
        now, before = (float(f or 0.0) for f in factors)
        if before and now > AMPLIFIES * before:
            at = ", ".join(f"{name}={float(rate):g}" for name, rate in rates.items())
            same = ", ".join(f"{name}=0.5" for name in rates)
            yield facts.warn(
                CODE,
                f"the batch's normalisation multiplies advantages by {now:.2g} at {at}, and by {before:.2g} at {same}, "
                f"in groups of {size}{facts.bound}",
                facts.advantage_place(),
                help="use a scheme without a step over the batch, such as `decoupled`, so that advantages keep their "
                "size as groups die",
            )
            return


def _over_batch(facts: Facts) -> ZScore | None:
    """The z-score over the batch that the advantage is."""
    node = facts.program.advantage
    found = match_zscore(facts.program.graph, node)
    while found is None and node.op == "if" and node.args[2].constant == 0:
        node = node.args[1]
        found = match_zscore(facts.program.graph, node)
    if found is None or found.over is not Level.BATCH or found.where is not None or found.by is not None:
        return None
    return found


def _factor(facts: Facts, found: ZScore, model: PolicyModel, size: int) -> float | None:
    """What a large batch of groups of one size multiplies advantages by; None if that takes too long.

    0 if no group is live.
    """
    root: Node = found.x
    moment = {"step": Fraction(0), "total_steps": Fraction(facts.run.total_steps or 1), "progress": Fraction(0)}
    moment["eps"] = facts.declared.eps
    if joint_cases(facts.program, root, facts.run.items) > MOST_CASES:
        return None
    try:
        states = find_states(facts.program, [root], moment, max(facts.run.sizes), model=model)
        count = states.count(size)
        if not states.complete or count * size * len(walk([root])) > MOST_VALUES:
            return None
        evaluate = GroupEvaluator(root, states.start, moment, floats=True)  # two digits are told
        mass = total = squares = 0.0
        for members, columns, weight in states.each_group(size, count):
            values = [float(v) for v in flat(evaluate(members, columns)) if v is not None]
            mass += weight * len(values)
            total += weight * sum(values)
            squares += weight * sum(v * v for v in values)
    except (Inexact, KeyError):
        return None
    if not mass:
        return 0.0
    variance = squares / mass - (0.0 if found.centered else total / mass) ** 2
    return 1 / sqrt(variance) if variance > 1e-12 else 0.0
