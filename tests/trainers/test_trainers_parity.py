"""Equal to the trainers' own numbers, taken from their installed code: TRL 1.16.0 and verl 0.9.1."""

import numpy as np
import pytest
import torch
from peers import trl_advantages, verl_gdpo

pytest.importorskip("trl")
pytest.importorskip("verl")

import rewardspec

pytestmark = pytest.mark.filterwarnings("ignore")  # what importing a trainer says is not about us

NAMES = "abc"
WEIGHTS = [1.0, 0.3, -2.0]
SEEDS = pytest.mark.parametrize("seed", range(5))
SIZES = pytest.mark.parametrize("size", [2, 4, 16])


def compiled(scheme, eps, weights=WEIGHTS):
    components = "".join(
        f"  {name}: {{range: [-.inf, .inf], missing: ignore, weight: {weight}}}\n"
        for name, weight in zip(NAMES, weights, strict=True)
    )
    return rewardspec.compile(
        rewardspec.loads(f"rewardspec: 1\nnumerics: {{eps: {eps}}}\ncomponents:\n{components}advantage: {scheme}\n")
    )


def random_rewards(seed, size, groups=12):
    """[N, 3] float32: a binary one, one of few levels, a smooth one; one group in which all are the same."""
    rng = np.random.default_rng(seed)
    n = groups * size
    rewards = np.stack([rng.integers(0, 2, n), rng.choice([0, 0.25, 0.5, 1], n), rng.normal(size=n)], 1)
    rewards[:size] = [1, 0.25, -0.5]
    return torch.tensor(rewards, dtype=torch.float32)


def columns(rewards):
    return {name: rewards[:, k].contiguous() for k, name in enumerate(NAMES)}


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# TRL: eps 1e-4, divisor G - 1


@SEEDS
@SIZES
@pytest.mark.parametrize(("aggregation", "scheme"), [("sum_then_normalize", "grpo"), ("normalize_then_sum", "gdpo")])
def test_trl_group_advantages(aggregation, scheme, size, seed):
    rewards = random_rewards(seed, size)
    expected = trl_advantages(rewards, torch.tensor(WEIGHTS), size, aggregation)
    assert expected.abs().max() > 0.5
    assert_equal(compiled(scheme, "1e-4")(columns(rewards), groups=size).advantages, expected)


@SEEDS
@SIZES
@pytest.mark.parametrize(("scale_rewards", "scheme"), [("batch", "batch_grpo"), ("none", "dr_grpo")])
def test_trl_scale_rewards(scale_rewards, scheme, size, seed):
    rewards = random_rewards(seed, size)
    expected = trl_advantages(rewards, torch.tensor(WEIGHTS), size, "sum_then_normalize", scale_rewards)
    assert_equal(compiled(scheme, "1e-4")(columns(rewards), groups=size).advantages, expected)


@SEEDS
def test_trl_gdpo_leaves_missing_rewards_out(seed):
    rng, rewards = np.random.default_rng(seed), random_rewards(seed, 8)
    rewards[torch.tensor(rng.random(rewards.shape) < 0.3)] = float("nan")
    rewards[3] = float("nan")  # unscorable: no part in anything, advantage 0
    expected = trl_advantages(rewards, torch.tensor(WEIGHTS), 8, "normalize_then_sum")
    actual = compiled("gdpo", "1e-4")(columns(rewards), groups=8).advantages
    assert expected[3] == actual[3] == 0
    assert_equal(actual, expected)


@SEEDS
def test_trl_grpo_with_one_reward_leaves_missing_ones_out(seed):
    # Of several rewards TRL counts a missing one as 0 in the sum; the language has it at its group's mean.
    rewards = random_rewards(seed, 8)[:, 2:]
    rewards[::5] = float("nan")
    expected = trl_advantages(rewards, torch.ones(1), 8, "sum_then_normalize")
    text = "rewardspec: 1\nnumerics: {eps: 1e-4}\ncomponents:\n  a: {range: [-.inf, .inf], missing: ignore}\n"
    fn = rewardspec.compile(rewardspec.loads(text + "advantage: grpo\n"))
    assert_equal(fn({"a": rewards[:, 0]}, groups=8).advantages, expected)


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_where_trl_turns_rounding_into_advantage_there_is_none(aggregation):
    # Laws outrank dialects: eight rewards of 0.7 get +-0.0006 from TRL (TRAINERS.md).
    rewards = torch.full((8, 3), 0.7)
    assert trl_advantages(rewards, torch.tensor([1.0, 0, 0]), 8, aggregation).abs().max() < 0.01
    scheme = {"sum_then_normalize": "grpo", "normalize_then_sum": "gdpo"}[aggregation]
    assert not compiled(scheme, "1e-4")(columns(rewards), groups=8).advantages.any()


# verl: eps 1e-6, divisor G - 1


def verl_estimator(name, rewards, index, **options):
    from verl.trainer.ppo import core_algos

    totals = (rewards * torch.tensor(WEIGHTS)).sum(1, keepdim=True)
    response_mask = torch.ones(len(rewards), 1)
    found = core_algos.get_adv_estimator_fn(name)(
        token_level_rewards=totals, response_mask=response_mask, index=index, **options
    )
    return found[0][:, 0]


RAGGED = [2, 3, 8, 5, 2, 16]


@SEEDS
@pytest.mark.parametrize(("scheme", "by_std"), [("grpo", True), ("dr_grpo", False)])
@pytest.mark.parametrize("estimator", ["grpo", "grpo_vectorized"])
def test_verl_grpo_of_ragged_interleaved_groups(estimator, scheme, by_std, seed):
    index = np.random.default_rng(seed).permutation(np.repeat([f"uid {i}" for i in range(len(RAGGED))], RAGGED))
    index = index.astype(object)
    rewards = random_rewards(seed, 1, groups=len(index))
    expected = verl_estimator(estimator, rewards, index, norm_adv_by_std_in_grpo=by_std)
    assert expected.abs().max() > 0.5
    assert_equal(compiled(scheme, "1e-6")(columns(rewards), index).advantages, expected)


@SEEDS
def test_verl_leave_one_out(seed):
    rewards = random_rewards(seed, 4)
    expected = verl_estimator("rloo", rewards, np.repeat(np.arange(12), 4).astype(object))
    assert_equal(compiled("rloo", "1e-6")(columns(rewards), groups=4).advantages, expected)


@SEEDS
@SIZES
def test_verl_gdpo(size, seed):
    # verl whitens over tokens with rsqrt(var + 1e-8); with responses of one token that is sequences.
    rewards = random_rewards(seed, size)
    assert_equal(compiled("gdpo", "1e-6")(columns(rewards), groups=size).advantages, verl_gdpo(rewards, WEIGHTS, size))


def test_group_of_one_has_advantage_zero_where_verl_gives_the_raw_reward():
    rewards = random_rewards(0, 1, groups=3)
    expected = verl_estimator("grpo", rewards, np.arange(3).astype(object))
    torch.testing.assert_close(expected, (rewards * torch.tensor(WEIGHTS)).sum(1))
    assert not compiled("grpo", "1e-6")(columns(rewards), groups=1).advantages.any()
