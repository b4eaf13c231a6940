"""An advantage that is compared with nothing, and never below 0.

No rollout is pushed down, bad ones are pushed up less than good ones: the policy gradient has no baseline. It is
unbiased, but its variance is that of the rewards themselves, and with few samples what was drawn is made likelier
because it was drawn. It follows from the formula: nothing is reduced over the group or the batch.

```yaml
components:
  correct: {values: [0, 1]}
  format: {values: [0, 1], weight: 0.2}
advantage: total
```

Compare each rollout with its group, `advantage: grpo`, `dr_grpo`, `rloo`, or with the batch, `whiten(total)`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic


@finding("no-baseline", __doc__, of_spec=True)
def no_baseline(facts: Facts) -> Iterator[Diagnostic]:
    root = facts.program.advantage
    order = walk([root])
    if any(n.op in REDUCTIONS or n.op == "copies" for n in order):
        return
    if any(n.op == "column" and n.level < Level.ROLLOUT for n in order):  # a baseline that was measured
        return
    few = root.domain.values is not None and len(root.domain.values) <= 2 and root.domain.lo == 0
    if root.domain.lo < 0 or root.domain.hi <= 0 or few:  # right answers alone are pushed up: a filter
        return
    yield facts.warn(
        "no-baseline",
        "the advantage is never below 0 and compared with nothing: no rollout is pushed down",
        facts.advantage_place(),
        help="compare it with its group, `grpo`, `dr_grpo` or `rloo`, or with the batch, `whiten(total)`",
    )
