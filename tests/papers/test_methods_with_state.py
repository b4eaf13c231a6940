"""Methods that carry values from step to step, against their formulas in NumPy, over several batches."""

import numpy as np
import pytest
from places import SPECS

import rewardspec


def members(groups):
    """The rows of each group, in order of first appearance."""
    return [np.flatnonzero(np.asarray(groups) == g) for g in dict.fromkeys(groups)]


def laconic(batches, budget=2000, rate=0.0035, eps=1e-6):
    """r - lambda * max(0, (L - B) / B), normalised in the group; lambda + rate * (mean L / B - 1), in its range."""
    price = 0.0
    for x, groups in batches:
        reward = x["correct"] - price * np.maximum(0, (x["tokens"] - budget) / budget)
        advantage = np.zeros(len(groups))
        for rows in members(groups):
            if len(rows) > 1 and np.ptp(reward[rows]) > 1e-12:
                advantage[rows] = (reward[rows] - reward[rows].mean()) / (reward[rows].std(ddof=1) + eps)
        price = min(max(price + rate * (x["tokens"].mean() / budget - 1), 0.0), 1.0)
        yield advantage, {"price": price}


def spo(batches, rho=0.875):
    """r - alpha / (alpha + beta), whitened over the batch; alpha rho + r and beta rho + 1 - r, for each prompt."""
    tracked = {}
    for x, groups in batches:
        before = np.array([tracked.get(prompt, (0.5, 0.5)) for prompt in x["prompt_id"]])
        advantage = x["correct"] - before[:, 0] / before.sum(1)
        advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
        seen = {}
        for rows in members(groups):
            mean = x["correct"][rows].mean()
            new = rho * before[rows[0]] + [mean, 1 - mean]
            seen.setdefault(x["prompt_id"][rows[0]], []).append(new)
        for prompt, found in seen.items():
            tracked.pop(prompt, None)
            tracked[prompt] = np.mean(found, axis=0)
        yield advantage, {name: [[p, v[i]] for p, v in tracked.items()] for i, name in enumerate(("right", "wrong"))}


def rae(batches, gamma=0.95):
    """R - b of the role; gamma b + (1 - gamma) R."""
    baseline = {}
    for x, groups in batches:
        advantage = x["reward"] - np.array([baseline.get(role, 0.0) for role in x["role"]])
        seen = {}
        for rows in members(groups):
            role = x["role"][rows[0]]
            seen.setdefault(role, []).append(gamma * baseline.get(role, 0.0) + (1 - gamma) * x["reward"][rows].mean())
        for role, found in seen.items():
            baseline.pop(role, None)
            baseline[role] = np.mean(found)
        yield advantage, {"baseline": [[role, b] for role, b in baseline.items()]}


def batches(names, seed):
    """Ten batches of ragged, interleaved groups."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        count = rng.integers(2, 6)
        groups = rng.permutation(np.repeat(np.arange(count), rng.integers(1, 5, count)))
        n = len(groups)
        values = {
            "correct": rng.integers(0, 2, n).astype(float),
            "tokens": rng.integers(1, 12000, n).astype(float),
            "reward": rng.choice([-1.5, -1, 0, 0.5, 1], n),
        }
        keys = rng.integers(0, 6, count)
        values |= {"prompt_id": [f"p{keys[g]}" for g in groups], "role": [int(keys[g]) for g in groups]}
        yield {name: values[name] for name in names}, groups.tolist()


METHODS = {
    "laconic/laconic": (laconic, ("correct", "tokens")),
    "spo/spo": (spo, ("correct", "prompt_id")),
    "spiral/rae": (rae, ("reward", "role")),
}


@pytest.mark.parametrize("name", METHODS)
def test_advantages_and_states_are_those_of_the_formula(name):
    formula, names = METHODS[name]
    fn = rewardspec.compile(SPECS / f"{name}.yaml")
    for seed in range(5):
        given = list(batches(names, seed))
        state = fn.initial_state()
        for (columns, groups), (advantage, after) in zip(given, formula(given), strict=True):
            out = fn(columns, groups, state=state)
            np.testing.assert_allclose(out.advantages.double().numpy(), advantage, rtol=1e-5, atol=1e-6)
            state = out.state
            assert state.keys() == after.keys()
            for key, expected in after.items():
                if isinstance(expected, list):
                    assert [k for k, _ in state[key]] == [k for k, _ in expected]
                    assert [v for _, v in state[key]] == pytest.approx([v for _, v in expected], abs=1e-6)
                else:
                    assert state[key] == pytest.approx(expected, abs=1e-9)
