"""Whether one group keeps a guarantee, decided in exact arithmetic."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rewardspec.groups.moments import Moment
from rewardspec.groups.question import MOST_TRIED_GROUPS, Group, Question
from rewardspec.ir.exact import GroupEvaluator, items_of
from rewardspec.ir.node import Node
from rewardspec.ops.real import UNKNOWN

KEPT, BROKEN, UNSURE, ENDS = "kept", "broken", "unsure", "ends"


class Decider:
    """Decides guarantees of a question group by group, and caches values that groups share."""

    def __init__(self, question: Question):
        self.question = question
        self.evaluators: dict[tuple[object, ...], GroupEvaluator] = {}  # by node and moment

    def values(self, node: Node, group: Group) -> list[Any]:
        """A node's exact values in a group: one for each rollout, or of list level one for each item."""
        return [v for value in self.nested(node, group) for v in items_of(value)]

    def nested(self, node: Node, group: Group) -> list[Any]:
        """A node's exact values in a group, one for each rollout; of list level a tuple."""
        return self._evaluator(node, group.moment).values(group.rollouts, group.columns)

    def decide(self, guarantee: Node, group: Group) -> str:
        """KEPT or BROKEN; UNSURE if too close to call; ENDS if the group raises an error."""
        found = self.values(guarantee, group)
        if not any(v is UNKNOWN or v == 0 for v in found):
            return KEPT
        ends = [] if self.question.ends is None else self.values(self.question.ends, group)
        if any(v is not UNKNOWN and v == 1 for v in ends):
            return ENDS
        if any(v is UNKNOWN for v in ends) or not any(v is not UNKNOWN and v == 0 for v in found):
            return UNSURE
        return BROKEN

    def is_broken_by_eps(self, name: str, group: Group) -> bool:
        """Whether a group that breaks a guarantee keeps it with eps 0."""
        without = self._without_eps
        if without is None:
            return False
        names, fewer = ([(n.op, n.attributes, n.level) for n in q.fine] for q in (self.question, without.question))
        if any(n not in names for n in fewer):
            return False
        at = [names.index(n) for n in fewer]
        rollouts = tuple(tuple(rollout[i] for i in at) for rollout in group.rollouts)
        guarantee = without.question.program.guarantees[name]
        return without.decide(guarantee, group._replace(rollouts=rollouts)) == KEPT

    @cached_property
    def _without_eps(self) -> Decider | None:
        spec = self.question.spec
        return (
            Decider(Question.of(spec, largest=self.question.largest, items=self.question.items))
            if spec.declarations.eps
            else None
        )

    def _evaluator(self, node: Node, moment: Moment) -> GroupEvaluator:
        key = (node, *moment.items())
        if key not in self.evaluators or len(self.evaluators[key].known) > MOST_TRIED_GROUPS:
            self.evaluators[key] = GroupEvaluator(node, list(self.question.fine), moment)
        return self.evaluators[key]
