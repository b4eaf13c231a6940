"""PRS, Eq. 13-15: stages that count once those before them are passed."""

import math
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

import rewardspec

SPECS = ROOT / "specs/prs"
SHORT, LONG, GENERAL = (rewardspec.compile(SPECS / f"{name}.yaml") for name in ("short", "long", "general"))


def totals(fn, rows, names):
    """The staged reward of each row, [N]."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return fn(columns, 1).rewards["staged"].tolist()


def test_short_form_row_by_row():
    """Eq. 13."""
    rows = [(-1, 0, 1), (0, 0.1, 1), (1, 0, 0.4), (1, 0.1, 1)]
    assert totals(SHORT, rows, ("process", "format", "answer")) == pytest.approx([-1, 0.1, 1.4, 2.1])


def test_long_form_row_by_row():
    """Eq. 14, and with every combination of what its cases ask for."""
    rows = [(-1, 0, 1, 1), (0, 0.1, 1, 0.5), (1, 0.1, 0, 0.5), (1, 0.1, 1, 0.5), (1, 0, 1, 1)]
    names = ("process", "format", "judge", "answer")
    assert totals(LONG, rows, names) == pytest.approx([-1, 0.1, 1.1, 2.6, 3])
    rows = list(product([-1, 0, 1], [0, 0.1], [0, 1], [0, 0.25, 1]))
    expected = [p + f + (j if p >= 1 else 0) + (a if p >= 1 and j >= 1 else 0) for p, f, j, a in rows]
    assert totals(LONG, rows, names) == pytest.approx(expected)


def test_passing_a_stage_never_lowers_the_total():
    """All of Eq. 14's states: where one rollout is as good as another in every stage, it has no smaller total."""
    rows = list(product([-1, 0, 1], [0, 0.1], [0, 1], [0, 0.25, 1]))
    found = totals(LONG, rows, ("process", "format", "judge", "answer"))
    for a, x in zip(rows, found, strict=True):
        for b, y in zip(rows, found, strict=True):
            if all(i >= j for i, j in zip(a, b, strict=True)):
                assert x >= y


def test_baseline_of_short_answers_is_an_exact_match():
    """Eq. 7: what PRS tells apart (Eq. 13) is one and the same to it, and a group of near misses has no gradient."""
    spec = rewardspec.load(SPECS / "zero_one.yaml")
    (function,) = rewardspec.rewards.for_trl(spec)
    texts = ["<answer>Jane Austen</answer>", "<answer>Jane</answer>", "Jane Austen", "<answer>jane austen.</answer>"]
    found = function(prompts=["p"] * 4, completions=texts, answer=["Jane Austen"] * 4)
    assert found == [1, 0, 0, 1]
    fn = rewardspec.compile(spec)
    assert fn({"correct": found}, 4).advantages.tolist() == pytest.approx([1, -1, -1, 1], abs=1e-5)
    assert not fn({"correct": [0, 0, 0]}, 3).advantages.any()


values = st.floats(-6, 6, width=32)


@pytest.mark.slow
@given(st.lists(st.tuples(values, values, values, values), min_size=1, max_size=8))
def test_general_form(rows):
    """Eq. 15 with thresholds 1, 0.5, 0.5."""

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    expected = [
        a + (a >= 1) * sigmoid(b) + (a >= 1 and b >= 0.5) * sigmoid(c) + (a >= 1 and b >= 0.5 and c >= 0.5) * sigmoid(d)
        for a, b, c, d in rows
    ]
    assert totals(GENERAL, rows, ("r1", "r2", "r3", "r4")) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
@given(st.lists(st.tuples(values, st.sampled_from([-1, 0, 0.5, 1, 2])), min_size=1, max_size=6))
def test_general_form_of_any_list_of_stages(stages):
    """A spec written for this list; that a stage is passed is worth more than that it is not."""
    text = "rewardspec: 1\nsignals:\n" + "".join(f"  s{i}: {{range: [-6, 6]}}\n" for i in range(len(stages)))
    text += "components:\n  staged:\n    squash: sigmoid\n    stages:\n      - s0\n"
    text += "".join(f"      - {{add: s{i}, when: s{i - 1} >= {stages[i - 1][1]}}}\n" for i in range(1, len(stages)))
    fn = rewardspec.compile(rewardspec.loads(text + "advantage: grpo\n"))
    rows = [tuple(x for x, _ in stages)]
    expected, open_ = stages[0][0], True
    for (before, threshold), (x, _) in pairwise(stages):
        open_ = open_ and before >= threshold
        expected += open_ / (1 + math.exp(-x))
    assert totals(fn, rows, [f"s{i}" for i in range(len(stages))]) == pytest.approx([expected], abs=1e-5)
