"""A baseline for each place of an ordered list.

`by=position` compares a turn with the turns that others took at the same place. Which rollouts get there is for the
policy to decide, so the baseline moves with what it should judge. At each place the advantages add up to 0: going on
is never compared with having stopped. A rollout that is alone at a place has advantage 0 there, whatever it did.

```yaml
lists: {turn: {ordered: true}}
signals: {gained: {range: [-1, 1], level: turn}}
components: {correct: {values: [0, 1]}}
advantage: zscore(correct) + center(gained, by=position)
```

Four rollouts gain [1], [1], [1, -1] and [1, -1] by turn: the last two go on and spoil what they had. At the first place
all are equal, at the second both are: every turn has `center(gained, by=position)` 0. Their totals are 1, 1, 0 and 0.

Compare what follows from a turn with all rollouts of the group, `returns(gained) - mean(sum(gained, over=rollout))`:
the two that went on have -0.5 and -1.5, the others 0.5. Or divide by what the turn saw, an id of the state, as GiGPO
does. A list whose length the policy does not choose is no `ordered: true` list here, such as the criteria of a rubric.
`by=position == count(position, over=rollout)` is not meant: it compares the last turns of all rollouts.

It follows from the formula.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.pooled import pooled
from rewardspec.lint.registry import finding
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic


@finding("baseline-depends-on-stopping", __doc__)
def baseline_depends_on_stopping(facts: Facts) -> Iterator[Diagnostic]:
    program = facts.question.program
    for node in walk([program.advantage, *(c.shaped for c in program.components)]):
        if node.op not in REDUCTIONS or len(node.args) < 3 or node.attributes[0] is Level.ROLLOUT:
            continue
        place = _place(facts, node.args[2])
        if place is None or node.op in ("count", "sum", "any", "all"):
            continue
        if _compares_those_that_got_there(facts, node):
            yield facts.warn(
                "baseline-depends-on-stopping",
                f"each {place.level} is compared only with those of rollouts that got as far",
                facts.own_place(node),
                help="compare with the whole group: `returns(x) - mean(sum(x, over=rollout))`",
            )
            return


def _place(facts: Facts, by: Node) -> Node | None:
    """The place in an ordered list that `by` divides by; None if it does not."""
    lists = facts.declared.lists
    return next((n for n in walk([by]) if n.op == "position" and lists[n.level.name].ordered), None)


def _compares_those_that_got_there(facts: Facts, node: Node) -> bool:
    """Whether items at some place after the first are only compared with those of rollouts that are as long.

    Not where `by` tells no places apart, or finds the last items of all rollouts.
    """
    reached: set[int] = set()
    shared: set[int] = set()  # places whose items are compared with a rollout that ended before
    for lengths, taken in pooled(facts, node):
        for rollout, place, subset in taken:
            others = [lengths[r] for r, _, s in taken if s == subset and r != rollout]
            reached |= {place} if others else set()
            shared |= {place} if any(length < place for length in others) else set()
    return bool(reached - shared - {1})
