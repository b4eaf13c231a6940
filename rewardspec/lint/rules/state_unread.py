"""A state that nothing reads.

The state is updated in every batch, kept by the trainer and saved in its checkpoints, but neither the advantage nor a
component, a weight, `keep`, `refill`, a guarantee or the outcome depends on it. Most often the formula that should read
it was written without it.

```yaml
components:
  correct: {values: [0, 1]}
state:
  level: {init: 0.5, range: [0, 1], update: "0.9 * level + 0.1 * mean(correct, over=batch)"}
advantage: dr_grpo
```

Read it, here as the baseline: `advantage: correct - level`. Or remove it: `metrics()` has the means of all components
for logs.

It follows from the compiled graph: no value that a run uses depends on the state.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.groups.parts import columns_of
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.unread import stated
from rewardspec.text.diagnostics import Diagnostic, Label


@finding("state-unread", __doc__, of_spec=True)
def state_unread(facts: Facts) -> Iterator[Diagnostic]:
    program = facts.program
    read = columns_of([*program.results, *stated(program)])
    while True:  # a state that only the update of a state reads is read if that one is
        more = {n for name, s in program.states.items() if name in read for n in columns_of([s.after])} - read
        if not more:
            break
        read |= more
    for name, state in program.states.items():
        if name not in read:
            yield facts.warn(
                "state-unread",
                f"nothing depends on the state `{name}`",
                state.declared.place.name,
                labels=(Label(facts.advantage_place(), "does not read it"),),
                help="read it in the advantage, a weight or a component, or remove it",
            )
