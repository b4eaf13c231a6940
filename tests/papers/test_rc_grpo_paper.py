"""RC-GRPO (arXiv:2602.03025): a product of checks, reward tokens, and the variance that they guarantee (Eq. 13)."""

from collections import Counter

import numpy as np
import pytest
from places import ROOT

import rewardspec

SPEC = rewardspec.load(ROOT / "specs/rc_grpo/rc_grpo.yaml")
FN = rewardspec.compile(SPEC)


def test_reward_is_a_product():
    """Eq. 5."""
    out = FN({"state": [0, 0, 1, 1], "action": [0, 1, 0, 1]}, 4)
    assert out.rewards["success"].tolist() == [0, 0, 0, 1]


def test_advantage_has_divisor_g():
    """Eq. 6: one success in four has mean 1/4 and standard deviation sqrt(3) / 4."""
    out = FN({"state": [1, 0, 0, 0], "action": [1, 1, 1, 1]}, 4)
    assert out.advantages.tolist() == pytest.approx([3**0.5, *[-(3**-0.5)] * 3], abs=1e-4)


def test_tokens_are_those_of_the_paper():
    """Sec. 3.2, App. B.1.1: at the end of the first user message."""
    condition = SPEC.condition
    assert condition.render("List the files.", "high").endswith("[Reward Goal: <|high_reward|>]")
    assert condition.render("List the files.", "low").endswith("[Reward Goal: <|low_reward|>]")
    assert condition.best == "high"
    assert condition.prior == {"high": 0.5, "low": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("size", [2, 8, 16])
def test_variance_is_above_the_bound(p, size):
    """Eq. 13: E[var_g] >= (G - 1) / G p (1 - p) d^2, where the modes' mean rewards are d apart.

    Each rollout draws its token with probability p for `high`, and succeeds with probability 0.9
    under `high`, 0.2 under `low`: d = 0.7. The mean over 4000 groups has a standard error below 0.004.
    """
    text = SPEC.source.text.replace("prior: {high: 0.5}", f"prior: {{high: {p}}}")
    condition = rewardspec.loads(text).condition
    groups = np.repeat(np.arange(4000), size)
    tokens = np.array(condition.draw(groups.tolist(), seed=11, step=0)) == "high"
    success = np.random.default_rng(0).random(len(groups)) < np.where(tokens, 0.9, 0.2)
    rewards = FN({"state": success, "action": np.ones(len(groups))}, size).rewards["success"].numpy()
    found = rewards.reshape(-1, size).var(1).mean()
    bound = (size - 1) / size * p * (1 - p) * 0.7**2
    exact = (size - 1) / size * (mean := 0.9 * p + 0.2 * (1 - p)) * (1 - mean)  # of a binary reward
    assert found > bound - 0.004
    assert found == pytest.approx(exact, abs=0.012)


@pytest.mark.slow
def test_modes_that_are_certain_meet_the_bound():
    """Success under `high` alone (d = 1): Eq. 13 is an equality."""
    groups = np.repeat(np.arange(20_000), 8)
    success = np.array(SPEC.condition.draw(groups.tolist(), seed=1, step=2)) == "high"
    found = success.astype(float).reshape(-1, 8).var(1).mean()
    assert found == pytest.approx(7 / 8 * 0.25, abs=0.002)


def test_without_tokens_a_collapsed_group_has_no_gradient():
    assert not FN({"state": [1] * 4, "action": [1] * 4}, 4).advantages.any()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0, 1])
def test_tokens_follow_the_prior(p):
    """Eq. 3."""
    text = SPEC.source.text.replace("prior: {high: 0.5}", f"prior: {{high: {p}}}")
    condition = rewardspec.loads(text).condition
    drawn = Counter(condition.draw([i // 8 for i in range(20_000)], seed=0, step=0))
    assert drawn["high"] / 20_000 == pytest.approx(p, abs=0.015)
    assert p not in (0, 1) or len(drawn) == 1
