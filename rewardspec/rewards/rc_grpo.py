"""Whole trajectories: RC-GRPO's state and action rewards (arXiv:2602.03025), whose product is the reward."""

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
    """1 where the environment ends in the state of the ground truth, else 0.

    Both are values as JSON has them, or JSON texts of objects or lists; equality is deep, the order of keys does not
    matter, that of lists does. No final state (None) is none that is right. Raises BadReference for no gold state, or
    one that begins as JSON and is none. Give states as texts where a table would add nulls to them.
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
    """1 where every call of the ground truth is among the calls made, else 0.

    A call made matches where the name is the same and every gold argument has an equal value; it may have further
    arguments, and the order does not matter. Calls stand in `<tool_call>` elements of the trajectory, as JSON
    objects with `name` and `arguments` (or `parameters`); an element that cannot be read was never executed.

    gold_calls: a list of calls, or JSON text of one; arguments that are null count as absent. Raises BadReference.
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
    """A JSON text of an object or a list as its value; anything else as it is. Raises Malformed."""
    return read_json(given) if isinstance(given, str) and given.lstrip()[:1] in ("{", "[") else given
