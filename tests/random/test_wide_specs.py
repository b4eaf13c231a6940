"""Random specs with lists, ids and state, read by the definitional interpreter in tests/reference/."""

import random
from collections import Counter

import pytest
from reference.batches import batch
from reference.interpreter import Batch, RolloutError, initial_state, interpret
from reference.nodes import SpecError
from reference.numbers import NoValue, TooClose
from reference.reader import Reader
from reference.wide import KINDS, Wide

TOGETHER = [(kind,) for kind in KINDS] + [KINDS]


def came_of(reader, data):
    """What came of a batch."""
    given = Batch(data.columns, data.groups, data.step, data.total_steps, state=initial_state(reader))
    try:
        interpret(reader, given, 2.0**-24)
    except (RolloutError, NoValue):
        return "raises"
    except TooClose:
        return "too close"
    return "ran"


@pytest.mark.parametrize("kinds", TOGETHER, ids=" ".join)
def test_most_random_specs_are_well_formed_and_run(kinds):
    outcomes, features = Counter(), set()
    for seed in range(40):
        draft = Wide(seed, kinds).spec()
        features |= draft.features
        try:
            outcomes[came_of(Reader(draft.text), batch(draft, random.Random(seed)))] += 1
        except SpecError:
            outcomes["refused"] += 1
    assert outcomes["ran"] >= 0.8 * 40, outcomes
    if "lists" in kinds:
        assert {"two lists", "along", "where of items", "by of items", "gate of items", "over=rollout"} <= features
