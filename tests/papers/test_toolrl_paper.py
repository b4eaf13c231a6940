"""ToolRL, Sec. 5.1 and 5.2: scales and length rewards that move with training."""

import json

import numpy as np
import pytest
from places import ROOT

import rewardspec
from rewardspec.prove.schedule import read_moments, schedule

SPECS = ROOT / "specs/toolrl"
ENDS = {"format": [0, 1, 0, 1], "correctness": [-3, -3, 3, 3]}


def scales(name, step, total_steps=100):
    """What the ends of the measured ranges become: ((format low, high), (correctness low, high))."""
    out = rewardspec.compile(SPECS / f"{name}.yaml")(ENDS, 4, step=step, total_steps=total_steps)
    form, correctness = out.rewards["format"].tolist(), out.rewards["correctness"].tolist()
    return (form[0], form[1]), (correctness[0], correctness[2])


@pytest.mark.parametrize("step", [0, 50, 100])
@pytest.mark.parametrize(("name", "expected"), [("original", ((0, 1), (-3, 3))), ("equal_max", ((0, 1), (-1, 1)))])
def test_scales_that_do_not_move(name, expected, step):
    assert scales(name, step) == expected


@pytest.mark.parametrize(
    ("progress", "expected"), [(0, ((-2, 2), (-2, 2))), (0.5, ((-1.5, 1.5), (-2.5, 2.5))), (1, ((-1, 1), (-3, 3)))]
)
def test_smooth_scale(progress, expected):
    found = scales("smooth", step=int(240 * progress), total_steps=240)
    assert found == tuple(pytest.approx(ends) for ends in expected)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, ((0, 1), (-1, 1))), (29, ((0, 1), (-1, 1))), (30, ((0, 0.5), (-3, 3))), (400, ((0, 0.5), (-3, 3)))],
)
def test_two_stage_scale(step, expected):
    assert scales("two_stage", step) == tuple(pytest.approx(ends) for ends in expected)


@pytest.mark.parametrize(
    ("name", "step", "expected"),
    [
        ("length", 0, [0, 0.5, 1, 1, 1]),
        ("length", 100, [0, 0.5, 1, 1, 1]),
        ("length_dynamic", 0, [0, 0.5, 1, 1, 1]),
        ("length_dynamic", 50, [0, 1 / 3, 2 / 3, 1, 1]),
        ("length_dynamic", 100, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_length_reward(name, step, expected):
    columns = {"format": [1] * 5, "correctness": [0] * 5, "think_words": [0, 256, 512, 768, 1024]}
    out = rewardspec.compile(SPECS / f"{name}.yaml")(columns, 5, step=step, total_steps=100)
    assert out.rewards["length"].tolist() == pytest.approx(expected)


def test_explain_shows_the_scales_at_moments_of_the_run():
    spec = rewardspec.load(SPECS / "smooth.yaml")
    rows = schedule(spec, read_moments("0, 30, 50%, 100%", 120), 120)
    assert rows == [
        ("format", "values", "{-2, 2}", "{-1.75, 1.75}", "{-1.5, 1.5}", "{-1, 1}"),
        ("format", "weight", "1", "1", "1", "1"),
        ("correctness", "values", "[-2, 2]", "[-2.25, 2.25]", "[-2.5, 2.5]", "[-3, 3]"),
        ("correctness", "weight", "1", "1", "1", "1"),
    ]
    rows = schedule(rewardspec.load(SPECS / "two_stage.yaml"), read_moments("29,30", None), None)
    assert rows[0] == ("format", "values", "{0, 1}", "{0, 0.5}")
    assert rows[2] == ("correctness", "values", "[-1, 1]", "[-3, 3]")


def test_moments_of_weights_and_of_a_gate_that_opens_late():
    text = """rewardspec: 1
components:
  a: {values: [0, 1], weight: '1 + ramp(step, start=10, end=20)'}
  b: {values: [0, 1], when: step >= 15, weight: 1 - progress}
advantage: gdpo
"""
    rows = schedule(rewardspec.loads(text), read_moments("0,15,100%", 30), 30)
    assert [row[2:] for row in rows] == [
        ("{0, 1}", "{0, 1}", "{0, 1}"),
        ("1", "1.5", "2"),
        ("0", "{0, 1}", "{0, 1}"),
        ("1", "0.5", "0"),
    ]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "1e3", "0,,1", "9" * 100])
def test_moments_that_are_none(text):
    with pytest.raises(ValueError, match=r"not|after"):
        read_moments(text, 100)


def test_moment_that_does_not_tell_the_progress():
    spec = rewardspec.load(SPECS / "smooth.yaml")
    assert schedule(spec, read_moments("0,100%", None), None)[0][2:] == ("{-2, 2}", "{-1, 1}")
    with pytest.raises(ValueError, match="`progress`, which is unknown at 30: add --total-steps"):
        schedule(spec, read_moments("30", None), None)


# Sec. 5.3: granularities of the correctness reward. Two gold calls of unlike names, so that pairs are clear.
GOLD = {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
MADE = [
    GOLD,
    {"a": {"x": 1, "y": 5}, "b": {"z": 3}},  # a wrong value
    {"a": {"x": 1}, "b": {"z": 3}},  # a parameter too few
    {"a": {"x": 1, "y": 2}, "c": {"z": 3}},  # a wrong name
    {"a": {"x": 1, "y": 2, "w": 0}, "b": {"z": 4}},
    {"c": {}, "d": {}},
]


def matched(granularity, made):
    """R_max and S_max of Sec. 5.3, as they are written there."""
    pairs = [(made.get(name), gold) for name, gold in GOLD.items()]
    keys = sum(made is not None and made.keys() == gold.keys() for made, gold in pairs)
    values = sum(made.get(k) == v for made, gold in pairs if made is not None for k, v in gold.items())
    whole = sum(made == gold for made, gold in pairs)
    jaccard = len(GOLD.keys() & made.keys()) / len(GOLD.keys() | made.keys())
    names = float(GOLD.keys() == made.keys())
    return {
        "fine": (names + keys + values, 1 + len(GOLD) + sum(map(len, GOLD.values()))),
        "intermediate": (jaccard + whole, 1 + len(GOLD)),
        "coarse": (float(made == GOLD), 1),
    }[granularity]


def written(calls):
    lines = "\n".join(json.dumps({"name": name, "parameters": values}) for name, values in calls.items())
    return f"<think>t</think>\n<tool_call>\n{lines}\n</tool_call>"


@pytest.mark.parametrize("granularity", ["fine", "intermediate", "coarse"])
def test_granularities_from_texts_to_advantages(granularity):
    spec = rewardspec.load(SPECS / f"{granularity}.yaml")
    texts = [written(made) for made in MADE] + ["<think>t</think>"]
    functions = rewardspec.rewards.for_trl(spec)
    rows = {"prompts": ["p"] * len(texts), "completions": texts, "answer": [written(GOLD)] * len(texts)}
    columns = {function.__name__: function(**rows) for function in functions}
    assert columns["format"] == [1] * len(MADE) + [0]
    scores = [6 * reward / most - 3 for reward, most in (matched(granularity, made) for made in MADE)] + [-3]
    assert columns["correctness"] == pytest.approx(scores)
    total = np.array(scores) + columns["format"]
    expected = (total - total.mean()) / (total.std() + 1e-6)  # divisor G, Sec. 3.4
    assert rewardspec.compile(spec)(columns, len(texts)).advantages.tolist() == pytest.approx(expected, abs=1e-5)
