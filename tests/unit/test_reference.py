"""The reference against numbers from the papers, numbers worked by hand, and the language's laws."""

import math
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import formulas as ref

NAN = math.nan
FLOAT32_ULP = float(np.finfo(np.float32).eps)
BINARY_PAIRS = list(product([0, 1], repeat=2))
ROOT_HALF = math.sqrt(0.5)
ALL_SCHEMES = pytest.mark.parametrize("scheme", ref.SCHEMES.values(), ids=ref.SCHEMES)


def close(actual, expected, atol=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


# GDPO Sec. 2


def one_group(*components, weight=1.0):
    """Rewards, weights and groups of a single group, from its components' values."""
    rewards = {f"r{k}": np.array(values, dtype=float) for k, values in enumerate(components)}
    return rewards, dict.fromkeys(rewards, weight), ["p"] * len(components[0])


def test_gdpo_worked_example():
    one_right = one_group([0, 1], [0, 0])
    both_right = one_group([0, 1], [0, 1])
    close(ref.grpo(*one_right), [-0.7071, 0.7071], atol=1e-4)
    close(ref.grpo(*both_right), [-0.7071, 0.7071], atol=1e-4)
    close(ref.decoupled(*one_right), [-0.7071, 0.7071], atol=1e-4)
    close(ref.decoupled(*both_right), [-1.4142, 1.4142], atol=1e-4)
    close(ref.dr_grpo(*one_right), [-0.5, 0.5])
    close(ref.dr_grpo(*both_right), [-1.0, 1.0])


def test_total_of_three_ones_is_flat_in_grpo_and_in_gdpo_only_at_equal_weights():
    # z(1,1,0) = (1, 1, -2) / sqrt(3) = -z(0,0,1), so equal weights cancel. GDPO Sec. 2 says "non-zero" of this
    # example, which holds of each component's own advantage, or as soon as the weights differ.
    rewards, weights, groups = one_group([1, 1, 0], [0, 0, 1])
    close(ref.grpo(rewards, weights, groups), [0, 0, 0], atol=0)
    close(ref.zscore(rewards["r0"], groups), np.array([1, 1, -2]) / math.sqrt(3))
    close(ref.decoupled(rewards, weights, groups), [0, 0, 0], atol=1e-12)
    close(ref.gdpo(rewards, weights, groups), [0, 0, 0], atol=0)
    close(ref.decoupled(rewards, {"r0": 1, "r1": 0.5}, groups), np.array([0.5, 0.5, -1]) / math.sqrt(3))


@pytest.mark.parametrize(
    ("scheme", "counts"),
    [
        ("grpo", [2, 4, 7, 11, 16, 22, 29]),
        ("dr_grpo", [3, 6, 10, 15, 21, 28, 36]),
        ("gdpo", [3, 6, 14, 26, 38, 59, 81]),
    ],
)
def test_distinct_groups_of_two_binary_rewards(scheme, counts):
    assert [ref.distinct_groups(BINARY_PAIRS, [1, 1], size, scheme) for size in range(2, 9)] == counts


# Numbers worked by hand


RAGGED = np.array([1.0, 2, 3, 6, 5])  # a: 1 3 5, mean 3, std 2; b: 2 6, mean 4, std sqrt(8)
RAGGED_GROUPS = list("ababa")


def test_statistics_of_ragged_interleaved_groups():
    close(ref.mean(RAGGED, RAGGED_GROUPS), [3, 4, 3, 4, 3])
    close(ref.std(RAGGED, RAGGED_GROUPS), [2, 8**0.5, 2, 8**0.5, 2])
    close(ref.std(RAGGED, RAGGED_GROUPS, ddof=0), [(8 / 3) ** 0.5, 2, (8 / 3) ** 0.5, 2, (8 / 3) ** 0.5])
    close(ref.mean(RAGGED, RAGGED_GROUPS, over="batch"), [3.4] * 5)
    close(ref.mean(RAGGED, RAGGED_GROUPS, where=RAGGED > 2), [4, 6, 4, 6, 4])
    assert np.isnan(ref.mean([1.0, NAN], ["p", "q"])).tolist() == [False, True]
    close(ref.std([1.0, NAN, NAN], ["p", "q", "q"]), [0, 0, 0], atol=0)


def test_normalisers_of_ragged_interleaved_groups():
    close(ref.center(RAGGED, RAGGED_GROUPS), [-2, -2, 0, 2, 2])
    close(ref.zscore(RAGGED, RAGGED_GROUPS), [-1, -ROOT_HALF, 0, ROOT_HALF, 1])
    close(ref.loo(RAGGED, RAGGED_GROUPS), [-3, -4, 0, 4, 3])
    close(ref.minmax(RAGGED, RAGGED_GROUPS), [0, 0, 0.5, 1, 1])
    close(ref.minmax(RAGGED, RAGGED_GROUPS, over="batch"), [0, 0.2, 0.4, 1, 0.8])


def test_labels_subdivide_groups_and_the_batch():
    label = np.array(["x", "x", "y", "x", "y"])
    close(ref.center(RAGGED, RAGGED_GROUPS, by=label), [0, -2, -1, 2, 1])
    close(ref.center(RAGGED, RAGGED_GROUPS, over="batch", by=label), [-2, -1, -1, 3, 1])


def test_subset_gives_the_statistics_and_the_rest_is_zero():
    # PAPO: process scores among the right answers 0, 0.5, 1; one right answer alone has no spread.
    process, right = np.array([0, 0.5, 1, 1, 1, 0]), np.array([1, 1, 1, 0, 1, 0], dtype=bool)
    close(ref.zscore(process, list("ppppqq"), where=right), [-1, 0, 1, 0, 0, 0])


def test_divisor_and_eps():
    close(ref.zscore([0, 1], ["p", "p"], ddof=0), [-1, 1])  # RC-GRPO Eq. 6
    close(ref.zscore([0, 1], ["p", "p"], eps=0.5), [-0.5 / (ROOT_HALF + 0.5), 0.5 / (ROOT_HALF + 0.5)])


def test_leave_one_out_baseline():
    rewards, weights, groups = one_group([0, 0, 3])
    close(ref.rloo(rewards, weights, groups), [-1.5, -1.5, 3])
    close(ref.rloo(rewards, weights, groups), ref.dr_grpo(rewards, weights, groups) * 3 / 2)


def test_batch_steps():
    # R = 0 2 | 5 5: std_b R = sqrt(18 / 3); c = -1 1 | 0 0: std_b c = sqrt(2 / 3).
    batch = {"r": np.array([0.0, 2, 5, 5])}, {"r": 1}, list("ppqq")
    close(ref.batch_grpo(*batch), np.array([-1, 1, 0, 0]) / 6**0.5)
    close(ref.reinforce_baseline(*batch), np.array([-1, 1, 0, 0]) * 1.5**0.5)
    # A = -1.4142 1.4142 | 0 0: std_b A = sqrt(4 / 3).
    pair = {"a": np.array([0.0, 1, 1, 1]), "b": np.array([0.0, 1, 0, 0])}, {"a": 1, "b": 1}, list("ppqq")
    close(ref.gdpo(*pair), np.array([-1, 1, 0, 0]) * 1.5**0.5)


def test_missing_value_stands_at_its_components_mean_in_the_total_only():
    rewards = {"a": np.array([1.0, NAN, 3, NAN]), "b": np.array([0.0, 0, 1, 4])}
    weights, groups = {"a": 1, "b": 0.5}, list("pppq")
    close(ref.total(rewards, weights, groups), [1, 2, 3.5, 2])
    b = np.array([-1, -1, 2]) / 3**0.5
    close(ref.decoupled(rewards, weights, groups), [-ROOT_HALF + b[0] / 2, b[1] / 2, ROOT_HALF + b[2] / 2, 0])


def test_weights_may_differ_between_groups():
    rewards, groups = {"r": np.array([0.0, 1, 0, 1])}, list("ppqq")
    close(ref.dr_grpo(rewards, {"r": np.array([1, 1, -2, -2])}, groups), [-0.5, 0.5, 1, -1])


def test_ramp_and_overlong():
    close(ref.ramp([-1, 2, 3, 9], 2, 4), [0, 0, 0.5, 1])
    close(ref.overlong([0, 4096, 6144, 8192, 9000], limit=8192, buffer=4096), [0, 0, -0.5, -1, -1])
    assert np.isnan(ref.overlong([NAN], limit=8, buffer=4)).all()


# Laws


@pytest.mark.parametrize("ddof", [0, 1])
@ALL_SCHEMES
def test_groups_without_spread_have_advantage_zero(scheme, ddof):
    rewards = {"a": np.array([0.1] * 8 + [2]), "b": np.array([0.7] * 8 + [3])}
    advantages = scheme(rewards, {"a": 1, "b": 0.3}, ["p"] * 8 + ["alone"], ddof=ddof)
    assert advantages.tolist() == [0] * 9


@pytest.mark.parametrize("scheme", [ref.grpo, ref.dr_grpo, ref.rloo, ref.batch_grpo, ref.reinforce_baseline])
def test_totals_that_differ_by_rounding_have_no_spread(scheme):
    assert 0.1 + 0.7 != 0.8
    assert scheme(*one_group([0.1, 0.8, 0.7], [0.7, 0.0, 0.1])).tolist() == [0] * 3


@pytest.mark.parametrize("normaliser", [ref.center, ref.zscore, ref.loo, ref.minmax])
def test_spread_is_measured_in_units_in_the_last_place(normaliser):
    groups = ["p"] * 3
    assert normaliser([0.8, 0.8 + 1e-7, 0.8], groups).any()
    assert not normaliser([0.8, 0.8 + 1e-7, 0.8], groups, ulp=FLOAT32_ULP).any()
    assert not normaliser([0, 1e-14, 0], groups, summed_from=[100, 100, 100]).any()
    assert normaliser([1e6, 1e6 + 1e-3, 1e6], groups).any()


@ALL_SCHEMES
def test_unmeasured_rollout_and_group_left_out_are_as_if_they_were_not_there(scheme):
    rewards = {"a": np.array([0.0, 1, NAN, 2, 9, 7, 1, 0]), "b": np.array([1.0, NAN, NAN, 0, 8, 9, 5, 1])}
    weights, groups = {"a": 1, "b": 2}, list("pppqzzqq")
    kept = ref.keep(rewards, groups, {"p": True, "q": True, "z": False})
    stay = [0, 1, 3, 6, 7]
    rest = {name: r[stay] for name, r in rewards.items()}
    advantages = scheme(kept, weights, groups)
    assert advantages[[2, 4, 5]].tolist() == [0, 0, 0]
    close(advantages[stay], scheme(rest, weights, [groups[i] for i in stay]), atol=1e-12)


@st.composite
def batches(draw):
    """Rewards, weights and ragged groups of a small batch with missing values, and an order of its rollouts."""
    size = draw(st.integers(1, 12))
    column = st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.7, 1.0, -3.0, 4000.0, NAN]), min_size=size, max_size=size)
    rewards = {name: np.array(draw(column)) for name in "abc"}
    weights = {name: draw(st.sampled_from([1.0, 0.5, 0.1, -1.0, 0.0])) for name in rewards}
    groups = draw(st.lists(st.sampled_from(["p", ("q", 1), 2]), min_size=size, max_size=size))
    return rewards, weights, groups, draw(st.permutations(range(size)))


@pytest.mark.slow
@ALL_SCHEMES
@given(batch=batches())
def test_permuting_rollouts_permutes_advantages(scheme, batch):
    rewards, weights, groups, order = batch
    advantages = scheme(rewards, weights, groups)
    permuted = scheme({name: r[order] for name, r in rewards.items()}, weights, [groups[i] for i in order])
    assert np.isfinite(advantages).all()
    close(permuted, advantages[order], atol=1e-9)


def papo_keeps_right_above_wrong(size):
    states = [(0.0, NAN), (1.0, 0.0), (1.0, 0.5), (1.0, 1.0)]
    for rollouts in combinations_with_replacement(states, size):
        rewards, weights, groups = one_group(*zip(*rollouts, strict=True))
        advantages, right = ref.decoupled(rewards, weights, groups), rewards["r0"] == 1
        if right.any() and not right.all() and advantages[right].min() <= advantages[~right].max():
            return False
    return True


def test_papo_keeps_right_above_wrong_up_to_groups_of_eight():
    assert [papo_keeps_right_above_wrong(size) for size in range(2, 11)] == [True] * 7 + [False] * 2
