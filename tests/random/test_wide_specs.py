"""Random specs with lists, ids and state, read twice: by rewardspec, and by the interpreter in tests/reference/.

Three batches each, whose state is what the function made of the batch before.
`WIDE=10000 pytest tests/random/test_wide_specs.py` reads as many of each kind.
"""

import os
import random
from collections import Counter
from fractions import Fraction as F

import pytest
from reference.author import Draft
from reference.batches import Data, batch
from reference.checks import Disagreement, check_compiled, compiled, read
from reference.wide import KINDS, Wide

WIDE = int(os.environ.get("WIDE", "40"))
TOGETHER = [(kind,) for kind in KINDS] + [KINDS]
# Errors that say what a domain allows, which the interpreter does not look at
OF_DOMAINS = {"gate-never-opens", "undefined", "otherwise-needed", "too-large"}


def read_wide(draft, seed):
    """What came of a spec and three batches: how often each outcome. Raises Disagreement."""
    reader, (fn, codes) = read(draft), compiled(draft)
    if fn is None:
        if reader is not None and not {*codes} <= OF_DOMAINS:
            raise Disagreement(f"refused ({', '.join(codes)}), and well-formed by the reference")
        return Counter(["refused"])
    if reader is None:
        raise Disagreement("accepted, and not well-formed by the reference")
    rng, state, found = random.Random(seed), fn.initial_state(), Counter()
    for _ in range(3):
        data = batch(draft, rng)
        data.state = state
        found[check_compiled(draft, reader, fn, data)] += 1
        state = data.state
    return found


@pytest.mark.parametrize("kinds", TOGETHER, ids=" ".join)
def test_compiled_functions_give_what_the_language_says(kinds):
    outcomes, features, wrong = Counter(), set(), []
    for seed in range(WIDE):
        draft = Wide(seed, kinds).spec()
        features |= draft.features
        try:
            outcomes += read_wide(draft, seed)
        except Exception as error:
            wrong.append(f"Wide({seed}, {kinds})\n{draft.text}\n{type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {WIDE} specs, {dict(outcomes)}\n\n" + "\n\n".join(wrong[:20])
    print(dict(outcomes))
    called = outcomes["equal"] + outcomes["raises"] + outcomes["too close"]
    assert outcomes["equal"] > 0.7 * called
    assert outcomes["refused"] < 0.4 * WIDE
    if "lists" in kinds:
        assert {"two lists", "along", "where of items", "by of items", "gate of items", "over=rollout"} <= features


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        (209, KINDS),  # items of two lists ask for one value
        (2932, KINDS),  # a sum for items whose terms are of the batch
        (334, KINDS),  # more than eight places ask for a value
        (5388, ("lists",)),  # a division by 0 that is not selected says nothing of rounding
        (5927, ("lists",)),  # the item after, of a constant
        (1193, ("state",)),  # `dr_grpo` of equal totals, where components may be missing
        (2858, ("state",)),  # a constant or `progress`, compared with a column
        (5480, ("state",)),  # `std_others` of two equal values that lie furthest out
    ],
)
def test_seeds_that_once_differed(seed, kinds):
    read_wide(Wide(seed, kinds).spec(), seed)


# The checks can fail --------------------------------------------------------------------------------

HEAD = """rewardspec: 1
lists: {turn: {ordered: true}}
signals:
  x: {range: [0, 9], level: turn}
  prompt: {id: true, level: group}
state:
  price: {init: 0.5, range: [0, 9], update: %s}
  held: {init: 0, range: [0, 9], by: prompt, update: held + 1}
components:
  a: {values: [0, 1]}
  t: {expr: x, when: a}
advantage: %s
"""
PAIRS = [
    ("decoupled", "gdpo"),
    ("x - mean(x)", "x - mean(x, over=rollout)"),
    ("x - mean(x)", "x - mean(mean(x, over=rollout))"),
    ("x - mean(x)", "x - mean(x, by=position)"),
    ("returns(x)", "so_far(x)"),
    ("returns(x)", "returns(x, gamma=0.5)"),
    ("coalesce(before(x), 0)", "coalesce(after(x), 0)"),
    ("sum(x, over=rollout)", "mean(x, over=rollout)"),
    ("x - price", "x"),
]


@pytest.mark.parametrize(
    ("one", "other"),
    [*(((("price", a), ("price", b))) for a, b in PAIRS), (("price + 1", "a"), ("price + 2", "a"))],
)
def test_the_check_sees_another_function(one, other):
    columns = {"x": [[F(1), F(3)], [F(2)], [F(6), F(4), F(8)]], "a": [F(1), F(0), F(1)], "prompt": [7] * 3}
    data = Data(columns, [0, 0, 0], dict.fromkeys(columns, "list"), None, None, {"turn": [2, 1, 3]})
    mine, theirs = Draft(HEAD % one, []), Draft(HEAD % other, [])
    data.state = compiled(mine)[0].initial_state()
    assert check_compiled(mine, read(mine), compiled(mine)[0], data) == "equal"
    data.state = compiled(mine)[0].initial_state()
    with pytest.raises(Disagreement):
        check_compiled(mine, read(mine), compiled(theirs)[0], data)
