"""Whole trajectories: RC-GRPO's state and action rewards (arXiv:2602.03025); the paper's reward is their product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewardspec.rewards.reward import BadReference, reward
from rewardspec.rewards.tagged import (
    ARGUMENTS,
    Call,
    Malformed,
    answer_part,
    elements,
    read_calls,
    read_json,
    same,
    wanted_calls,
)


@reward("rc_grpo.state", domain=(0, 1))
def state(final_state: object, gold_state: object) -> float:
    """1 if the environment ends in the state of the ground truth, else 0.

    Both are JSON values, or JSON texts of objects or lists. Equality is deep; the order of keys does not matter, the
    order of lists does. A missing final state (None) is wrong. Raises BadReference for a missing gold state, or one
    that begins like JSON but is not. Give states as texts if a table would add nulls to them.
    Source: RC-GRPO, arXiv:2602.03025, Eq. 5 and 27.
    """
    if gold_state is None:
        raise BadReference("there is no gold state")
    try:
        gold = _value(gold_state)
    except Malformed as error:
        raise BadReference(f"gold state: {error}") from None
    try:
        return float(final_state is not None and same(_value(final_state), gold))
    except Malformed:
        return 0.0


@reward("rc_grpo.action", domain=(0, 1))
def action(completion: str, gold_calls: str | Sequence[Mapping[str, Any]]) -> float:
    """1 if every call of the ground truth is among the calls made, else 0.

    A call matches if it has the name and every argument of the gold call, with equal values; it may have more
    arguments. The order of calls does not matter. Calls are JSON objects with `name` and `arguments` (or `parameters`)
    in `<tool_call>` elements of the trajectory; an element that cannot be read was never executed.

    gold_calls: a list of calls, or its JSON text; null arguments count as absent. Raises BadReference.
    Source: RC-GRPO, arXiv:2602.03025, Eq. 5 and 28.
    """
    try:
        gold = wanted_calls(gold_calls)
    except Malformed as error:
        raise BadReference(f"gold calls: {error}") from None
    made: list[Call] = []
    for inner in elements(answer_part(completion), "tool_call"):
        try:
            made += read_calls(inner, ARGUMENTS) if inner is not None else ()
        except Malformed:
            continue
    return float(all(any(_matches(call, wanted) for call in made) for wanted in gold))


def _matches(made: Call, gold: Call) -> bool:
    return made[0] == gold[0] and all(key in made[1] and same(made[1][key], value) for key, value in gold[1].items())


def _value(given: object) -> object:
    """The value of a JSON text of an object or a list; anything else unchanged. Raises Malformed."""
    return read_json(given) if isinstance(given, str) and given.lstrip()[:1] in ("{", "[") else given
