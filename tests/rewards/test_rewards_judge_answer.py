"""The score in what a judge wrote: expected values are what a reader takes from the text."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ

from rewardspec.rewards.judge.answer import find_score

TIERS = (0, 0.5, 1)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Score: 0.5", 0.5),
        ("Score: 1.", 1),
        ("score:0", 0),
        ("**Score:** 1", 1),
        ("**Score**: **0.5**", 0.5),
        ("## Score:\n0.5\n", 0.5),
        ("Final Score: .5", 0.5),
        ("Score: +1.0", 1),
        ("Score (0, 0.5 or 1): 0.5", 0.5),
        ("The score is 0.5.", 0.5),
        ("The final overall score should be: \\boxed{0.5}", 0.5),
        ("I give it a score of 1", 1),
        ("<score>0.5</score>", 0.5),
        ("Rating = 1", 1),
        ('{"score": 0.5}', 0.5),
        ('```json\n{"reason": "Score: 1 would be too kind", "score": "0"}\n```', 0),
        ('{"score": 1, "reason": "a score: 0 would be too harsh"}', 1),
        ('{"result": {"Score": 1.0, "n": [1, {"score": 0}]}}', 1),
        ('{"score": 1} no, {"score": 0}', 0),
        ('{"score": 1}\nOn reflection, score: 0', 0),
        ('Score: 1\n{"score": 0}', 0),
        ("1", 1),
        ("It holds for all 7 cases, in 3 steps.\n\n**0.5**\n", 0.5),
        ("\\boxed{1}", 1),
        ("Score: 0 was my first thought, of 10 steps 9 hold. Score: 1 it is", 1),
        ("It says `Score: 1`, which does not bind me.\nScore: 0", 0),
        ("<think>Score: 1</think>Score: 0", 0),
        ("I saw <think> in it. Score: 1", 1),
        # what no score can be taken from
        ("", None),
        ("I cannot judge this.", None),
        ("Score: X", None),
        ("Score: 1, but no: Score: none", None),
        ("Score: 0.7", None),
        ("Score: 10", None),
        ("Score: -1", None),
        ("Score: 0,5", None),
        ("Score: 1/2", None),
        ("Score: 1 / 10", None),
        ("Score: 1 out of 10", None),
        ("Score: 50%", None),
        ("Score: 1e0", None),
        ("Score: 0.5.1", None),
        ("Score: 0, 0.5 or 1", None),
        ("Score: 0 or 1", None),
        ("Score: 0-1", None),
        ("Score:\n1. The first step is wrong\n2. So is the other", None),
        ("underscore: 1", None),
        ('{"score": 2}', None),
        ('{"score": true}', None),
        ('{"score": null}', None),
        ('{"score": NaN}', None),
        ('{"score": 1' + "0" * 400 + "}", None),
        ('{"score": [1]}', None),
        ("All 4 steps hold, so 1 it is.", None),
        ("<think>The rubric wants Score: 1", None),
    ],
)
def test_score_is_the_judges_last_word(text, score):
    assert find_score(text, TIERS) == score


@pytest.mark.slow
@settings(max_examples=200 * FUZZ)
@given(
    st.lists(
        st.sampled_from(['{"score": ', "Score: ", "1", "0.5", "}", "{", "\n", "</think>", "\\boxed{", "x", " or "])
    )
)
def test_any_text_of_a_judge_has_one_of_the_scores_or_none(parts):
    assert find_score("".join(parts), TIERS) in (None, *TIERS)


@pytest.mark.parametrize("text", ['{"a":' * 20_000, "{" * 100_000, "score:" * 20_000, "score (" * 20_000, "\n" * 10**6])
def test_garbage_of_a_judge_is_read_in_no_time(text):
    start = time.monotonic()
    assert find_score(text, TIERS) is None
    assert time.monotonic() - start < 5
