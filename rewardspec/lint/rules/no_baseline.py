"""An advantage without a baseline, which is never negative.

No rollout becomes less likely; bad ones only become more likely by less than good ones. The policy gradient is
unbiased without a baseline, but its variance is that of the rewards. With few samples, a rollout becomes more likely
merely because it was sampled. A sum or a mean over the items of one rollout is no baseline.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1], weight: 0.2}
advantage: total
```

Compare each rollout with its group (`advantage: grpo`, `dr_grpo`, `rloo`) or with the batch (`whiten(total)`).

It follows from the formula: it has no reduction over the group or the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import walk
from rewardspec.ir.node import is_across_rollouts
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.ops.domain import Level
from rewardspec.text.diagnostics import Diagnostic


@finding("no-baseline", __doc__, of_spec=True)
def no_baseline(facts: Facts) -> Iterator[Diagnostic]:
    root = facts.program.advantage
    order = walk([root])
    if any(is_across_rollouts(n) for n in order):
        return
    if any(n.op == "column" and n.level < Level.ROLLOUT for n in order):  # a baseline that was measured
        return
    few = root.domain.values is not None and len(root.domain.values) <= 2 and root.domain.lo == 0
    if root.domain.lo < 0 or root.domain.hi <= 0 or few:  # it only selects right answers: a filter
        return
    yield facts.warn(
        "no-baseline",
        "the advantage has no baseline: it is never negative",
        facts.advantage_place(),
        help="compare with the group (`grpo`, `dr_grpo`, `rloo`) or with the batch (`whiten(total)`)"
        if facts.is_summed
        else "compare each reward with its group: `decoupled`",
    )
