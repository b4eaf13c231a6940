"""Distinct advantage groups. Numbers: GDPO (arXiv:2601.05242), Fig. 3, and the design's table."""

import itertools

import numpy as np
import pytest
from places import ROOT
from reference import formulas as reference

import rewardspec
from rewardspec.prove import growth
from rewardspec.prove.simulate import count_groups, simulate

TWO_REWARDS = {  # group sizes 2..8
    "grpo": [2, 4, 7, 11, 16, 22, 29],
    "dr_grpo": [3, 6, 10, 15, 21, 28, 36],
    "gdpo": [3, 6, 14, 26, 38, 59, 81],
}
GROUPS_OF_FOUR = {  # 1..7 rewards
    "grpo": [4, 7, 14, 23, 41, 56, 89],
    "dr_grpo": [4, 10, 20, 35, 56, 84, 120],
    "gdpo": [4, 14, 45, 127, 318, 722, 1507],
}
GROUPS_OF_TWELVE = {"grpo": 67, "dr_grpo": 78, "gdpo": 230}  # two rewards


def binary(rewards, scheme):
    lines = "\n".join(f"  r{i}: {{values: [0, 1]}}" for i in range(rewards))
    return rewardspec.loads(f"rewardspec: 1\ncomponents:\n{lines}\nadvantage: {scheme}\n").program


@pytest.mark.parametrize("scheme", TWO_REWARDS)
def test_two_binary_rewards(scheme):
    counts = [count_groups(binary(2, scheme), "", size) for size in range(2, 9)]
    assert [c.advantage_groups for c in counts] == TWO_REWARDS[scheme]
    assert all(c.exact for c in counts)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", GROUPS_OF_FOUR)
def test_groups_of_four(scheme):
    counts = [count_groups(binary(n, scheme), "", 4) for n in range(1, 8)]
    assert [c.advantage_groups for c in counts] == GROUPS_OF_FOUR[scheme]
    assert all(c.exact for c in counts)


@pytest.mark.parametrize("scheme", GROUPS_OF_TWELVE)
def test_groups_of_twelve(scheme):
    count = count_groups(binary(2, scheme), "", 12)
    assert (count.advantage_groups, count.exact) == (GROUPS_OF_TWELVE[scheme], True)


@pytest.mark.slow
@pytest.mark.parametrize(("rewards", "size", "expected"), [(16, 4, 123187), (4, 8, None), (3, 16, None)])
def test_far_beyond_enumeration(rewards, size, expected):
    """16 rewards and groups of 4: 123187 by the design's own count; there are 7.7e17 reward groups."""
    count = count_groups(binary(rewards, "gdpo"), "", size)
    assert count.exact
    assert expected in (None, count.advantage_groups)


@pytest.mark.parametrize("scheme", ["grpo", "dr_grpo", "rloo", "decoupled", "gdpo", "batch_grpo", "reinforce_baseline"])
@pytest.mark.parametrize("weights", [(1, 1), (1, 0.5), (0.3, 0.7)])
def test_counts_are_those_of_brute_force(scheme, weights):
    states = [(a, b) for a in (0, 0.5, 1) for b in (0, 1)]
    text = f"""rewardspec: 1
components:
  a: {{values: [0, 0.5, 1], weight: {weights[0]}}}
  b: {{values: [0, 1], weight: {weights[1]}}}
advantage: {scheme}
"""
    for size in (2, 3):
        count = count_groups(rewardspec.loads(text).program, "", size)
        assert count.exact
        assert count.advantage_groups == reference.distinct_groups(states, weights, size, scheme)


def test_reward_groups_are_multisets_of_reward_vectors():
    assert count_groups(binary(2, "grpo"), "", 2).reward_groups == 10  # 4 vectors, pairs with repetition


def test_conditioning_merges_reward_vectors():
    assert count_groups(rewardspec.loads(CONDITIONED).program, "", 2).reward_groups == 6  # (0,0), (1,0), (1,1)


CONDITIONED = """rewardspec: 1
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  length: {expr: tokens <= 4000, when: correct >= 1}
advantage: gdpo
"""


def test_interval_that_is_only_compared_is_cut_where_it_is_compared():
    count = count_groups(rewardspec.loads(CONDITIONED).program, "", 4)
    assert count.exact


def test_interval_that_is_rewarded_is_only_sampled():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {r: {range: [0, 1]}}\nadvantage: grpo\n")
    count = count_groups(spec.program, "", 3)
    assert not count.exact
    assert count.advantage_groups <= count.reward_groups


def test_transcendental_values_are_counted_exactly():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {r: {values: [0, 1, 2]}}\nadvantage: center(exp(r))\n")
    count = count_groups(spec.program, "", 2)
    assert (count.exact, count.advantage_groups) == (True, 4)  # 0 and three distances


@pytest.mark.slow
def test_more_groups_than_are_tried_say_so():
    lines = "".join(f"  r{i}: {{values: [0, 1], weight: {2**i}}}\n" for i in range(6))  # 64 sums, all different
    spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n{lines}advantage: grpo\n")
    assert not count_groups(spec.program, "", 6).exact


def test_groups_left_out_have_one_advantage_group():
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nkeep: all(a >= 1)\nadvantage: grpo\n"
    assert count_groups(rewardspec.loads(text).program, "", 4).advantage_groups == 1


GRADED = """
rewardspec: 1
components: {format: {values: [0, 1]}, graded: {values: [-3, -1.5, 0, 0.5, 3]}}
advantage: gdpo
"""


@pytest.mark.slow
def test_pairings_begun_again_in_halves_are_all_there(monkeypatch):
    program = rewardspec.loads(GRADED).program
    whole = count_groups(program, "graded", 5)
    monkeypatch.setattr(growth, "PAIRINGS_AT_ONCE", 64)
    halved = count_groups(program, "graded", 5)
    assert (halved.advantage_groups, halved.exact) == (whole.advantage_groups, True)
    assert halved.signal.groups_without_signal == pytest.approx(whole.signal.groups_without_signal)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["MOST_PAIRINGS", "MOST_VALUE_SUMS", "MOST_SUMS", "PAIRINGS_AT_ONCE"])
def test_what_grows_beyond_a_limit_is_counted_from_below(monkeypatch, limit):
    program = rewardspec.loads(GRADED).program
    whole = count_groups(program, "graded", 5)
    monkeypatch.setattr(growth, limit, 3)
    found = count_groups(program, "graded", 5)
    assert whole.exact and not found.exact and 1 < found.advantage_groups <= whole.advantage_groups


def test_groups_that_would_end_the_run_are_counted_and_have_no_signal():
    text = """
rewardspec: 1
components: {a: {values: [0, 1]}, b: {values: [0, 1], missing: ignore}}
advantage: center(a) + b
"""
    found = count_groups(rewardspec.loads(text).program, "ends", 2)
    # center(a): (0, 0), (-1/2, 1/2); b: six pairs of 0, 1 and missing; by hand the sums that differ
    halves = [(0, 0), (-0.5, 0.5)]
    values = [0, 1, None]
    plus = lambda x, y: None if y is None else x + y  # noqa: E731
    sums = {tuple(sorted((plus(c[0], x), plus(c[1], y)), key=str)) for c in halves for x in values for y in values}
    assert (found.advantage_groups, found.signal) == (len(sums), None)


@pytest.mark.parametrize(("size", "groups"), [(3, 3), (6, 6)])
def test_counts_of_sigmoids_are_neither_above_nor_below_the_truth(size, groups):
    """k of n right answers have another z-score for every k from 1 to n - 1, and none right or all right have 0."""
    spec = rewardspec.loads("rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\n  d: sigmoid(a)\nadvantage: grpo\n")
    count = count_groups(spec.program, "", size)
    assert (count.exact, count.advantage_groups) == (True, groups)
    assert count.signal.groups_without_signal == count.signal.rollouts_without_signal == 2 / 2**size


def test_values_too_close_to_call_are_never_counted_twice():
    """cos 2 = 2 cos^2 1 - 1: a and b have one value, which no rule here knows, so the count is 1 or 2."""
    spec = rewardspec.loads(
        "rewardspec: 1\nsignals: {a: {values: [0, 1]}}\n"
        "components: {c: {expr: cos(2) if a == 1 else 2 * cos(1) ** 2 - 1}}\nadvantage: total\n"
    )
    count = count_groups(spec.program, "", 2)
    assert not count.exact
    assert count.advantage_groups == 1
    assert not count.signal.exact


def test_a_sum_of_a_value_with_itself_over_and_over_is_not_taken_apart():
    doubled = "".join(f"  d{i}: d{i - 1} + d{i - 1}\n" for i in range(1, 60))
    text = "rewardspec: 1\nsignals: {a: {range: [0, 1]}}\ncomponents: {c: d59}\ndefine:\n  d0: a\n"
    count = count_groups(rewardspec.loads(text + doubled + "advantage: grpo\n").program, "", 2)
    assert (count.advantage_groups, count.exact) == (2, False)


def test_a_sum_that_is_too_close_to_call_is_a_bound():
    """cos 2 is 2 cos^2 1 - 1, which nothing here shows: whether the sums are one cannot be told."""
    text = """rewardspec: 1
components:
  a: {values: [0, 1]}
  b: {values: [0, 1]}
advantage: a * cos(2) - b * (2 * cos(1) * cos(1) - 1)
"""
    count = count_groups(rewardspec.loads(text).program, "", 1)
    assert not count.exact and count.advantage_groups <= 3  # 0, cos 2 and -cos 2


def test_simulate_takes_rates_and_a_step_of_a_spec():
    """A right answer with probability p: a group of 2 is dead when both are right or both wrong."""
    spec = rewardspec.loads(
        "rewardspec: 1\nname: s\ncomponents: {a: {values: [0, 1], weight: progress}}\nadvantage: grpo\n"
    )
    found = simulate(spec, 2, rates={"a": 0.3}, step=50, total_steps=100)
    assert (found.spec, found.exact, found.reward_groups, found.advantage_groups) == ("s", True, 3, 2)
    assert found.signal.groups_without_signal == pytest.approx(0.3**2 + 0.7**2)
    assert repr(found) == "<Simulation of 's', groups of 2: 3 reward groups, 2 advantage groups>"
    assert simulate(spec, 2, total_steps=100).signal.groups_without_signal == 1  # at step 0 the weight is 0
    with pytest.raises(ValueError, match="no column or component"):
        simulate(spec, 2, rates={"b": 0.3})


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("file", "weights", "told_apart"),
    [
        ("rubric", (5, 3, 2, -4), {2: (136, 2, 14), 4: (3876, 385, 2067)}),
        ("two_turns", (0.5, 0.5, 1), {2: (36, 2, 5), 4: (330, 23, 93)}),
    ],
)
def test_the_readme_counts_rubrics_and_tools(file, weights, told_apart, size):
    """Summed first, and normalised first: by NumPy, in floats rounded to nine places, and by the package."""
    states = np.array(list(itertools.product((0.0, 1.0), repeat=len(weights))))
    groups = states[np.array(list(itertools.combinations_with_replacement(range(len(states)), size)))]

    def zscores(x):
        deviation, std = x - x.mean(1, keepdims=True), x.std(1, keepdims=True, ddof=1)
        return np.where(std > 1e-9, deviation / np.where(std > 1e-9, std, 1), 0)

    def distinct(advantages):
        return len(np.unique(np.sort(np.round(advantages, 9) + 0.0, 1), axis=0))

    counted = len(groups), distinct(zscores(groups @ np.array(weights))), distinct(zscores(groups) @ np.array(weights))
    assert counted == told_apart[size]
    for scheme, found in (("grpo", counted[1]), ("decoupled", counted[2])):
        spec = rewardspec.load(ROOT / "examples" / "signal" / f"{file}.yaml", advantage=scheme)
        count = count_groups(spec.program, "", size)
        assert (count.exact, count.reward_groups, count.advantage_groups) == (True, counted[0], found)
