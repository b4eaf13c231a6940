"""Methods on turns and criteria against their formulas, in loops over groups, rollouts and items.

What the formulas are is said by `source:` of each spec. Groups and lists are ragged, some lists are empty, rollouts are
in any order. No spread is no advantage, in the loops too.
"""

from functools import cache

import numpy as np
import pytest
from places import SPECS

import rewardspec


@cache
def compiled(name):
    return rewardspec.compile(SPECS / f"{name}.yaml")


def normal(values, eps=1e-6, scale=True):
    """(v - mean) / (std + eps) of one group with the divisor n - 1; 0 without spread."""
    values = np.array(values, dtype=float)
    if len(values) < 2 or np.ptp(values) < 1e-12:
        return np.zeros(len(values))
    return (values - values.mean()) / (values.std(ddof=1) + eps if scale else 1)


def among(keys, values, **options):
    """`normal` of the values that share a key, put back where they are."""
    out = np.zeros(len(keys))
    for key in dict.fromkeys(keys):
        rows = [i for i, k in enumerate(keys) if k == key]
        out[rows] = normal([values[i] for i in rows], **options)
    return out


def discounted(rewards, gamma):
    """Each reward and all that follow, backwards."""
    out, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        out.append(running)
    return out[::-1]


def items(lists):
    """(rollout, place) of each item."""
    return [(i, k) for i, row in enumerate(lists) for k in range(len(row))]


def gigpo(scale=True, by_steps=False):
    """Eq. 3, 5-8."""

    def advantages(x, groups):
        where = items(x["reward"])
        returns = [discounted(row, 0.95) for row in x["reward"]]
        same = [(groups[i], x["state"][i][k]) for i, k in where]
        step = among(same, [returns[i][k] for i, k in where], scale=scale)
        if by_steps:
            episode = among([groups[i] for i, _ in where], [x["episode"][i] for i, _ in where], scale=scale)
        else:
            episode = among(groups, x["episode"], scale=scale)[[i for i, _ in where]]
        return episode + step

    return advantages


def mt_grpo(x, groups):
    """_assign_advantages, aae: tokens before the first result also have the advantage of the turn's reward."""
    tool, outcome = (among(groups, x[name], eps=1e-4) for name in ("tool", "outcome"))
    both = among(groups, [a + b for a, b in zip(x["tool"], x["outcome"], strict=True)], eps=1e-4)
    out = []
    for i, k in items(x["result"]):
        if 1 not in x["result"][i]:
            out.append(both[i])
        else:
            out.append(outcome[i] + (tool[i] if k <= x["result"][i].index(1) else 0))
    return out


def kevin(x, groups):
    scores = [
        [0.3 + speed if right else 0.0 for right, speed in zip(*row, strict=True)]
        for row in zip(x["correct"], x["speedup"], strict=True)
    ]
    returns = [discounted(row, 0.4) for row in scores]
    where = items(scores)
    return among([groups[i] for i, _ in where], [returns[i][k] for i, k in where])


def possible(points):
    return sum(p for p in points if p > 0)


def healthbench(x, groups):
    """calculate_score; None where there is nothing to have, which takes no part."""
    scores = [
        sum(p for p, met in zip(points, marks, strict=True) if met) / possible(points) if possible(points) else None
        for points, marks in zip(x["points"], x["met"], strict=True)
    ]
    rows = [i for i, score in enumerate(scores) if score is not None]
    out = np.zeros(len(groups))
    out[rows] = among([groups[i] for i in rows], [scores[i] for i in rows])
    return out


def healthbench_decoupled(x, groups):
    where = items(x["met"])
    normalised = among([(groups[i], k) for i, k in where], [x["met"][i][k] for i, k in where])
    out = np.zeros(len(groups))
    for (i, k), value in zip(where, normalised, strict=True):
        if possible(x["points"][i]):
            out[i] += x["points"][i][k] * value / possible(x["points"][i])
    return out


def one_of(*values):
    return lambda rng: values[rng.integers(len(values))]


def number(lo, hi):
    return lambda rng: float(rng.uniform(lo, hi))


METHODS = {  # the formula, columns of rollouts, columns of items; what they can be
    "gigpo/gigpo": (gigpo(), {"episode": one_of(0, 10)}, {"reward": one_of(0, 0, -0.1, 1), "state": one_of(*"abc")}),
    "gigpo/gigpo_mean": (
        gigpo(scale=False),
        {"episode": number(-1, 10)},
        {"reward": number(-1, 1), "state": one_of(3, 10**17, 10**17 + 1)},
    ),
    "gigpo/gigpo_steps": (
        gigpo(by_steps=True),
        {"episode": one_of(0, 10)},
        {"reward": one_of(0, 0, -0.1, 1), "state": one_of(*"abc")},
    ),
    "mt_grpo/mt_grpo": (mt_grpo, {"tool": one_of(0, 0.2, 0.7), "outcome": number(-1, 2)}, {"result": one_of(0, 0, 1)}),
    "kevin/kevin": (kevin, {}, {"correct": one_of(0, 1), "speedup": number(0.1, 4)}),
    "healthbench/healthbench": (healthbench, {}, {"met": one_of(0, 1), "points": one_of(-8, -3, 2, 5, 10)}),
    "healthbench/healthbench_decoupled": (
        healthbench_decoupled,
        {},
        {"met": one_of(0, 1), "points": one_of(-8, -3, 2, 5, 10)},
    ),
}
SHARED = {"healthbench/healthbench_decoupled": "points"}  # a list that the rollouts of a group share


def batch(name, seed):
    """Columns and ids of groups: 1 to 5 groups of 1 to 6 rollouts of 0 to 5 items, in any order."""
    _, of_rollouts, of_items = METHODS[name]
    rng = np.random.default_rng(seed)
    groups = rng.permutation([g for g in range(rng.integers(1, 6)) for _ in range(rng.integers(1, 7))]).tolist()
    lengths, shared = rng.integers(0, 6, len(groups)).tolist(), SHARED.get(name)
    if shared:
        lengths = [lengths[groups.index(g)] for g in groups]
    columns = {key: [draw(rng) for _ in groups] for key, draw in of_rollouts.items()}
    columns |= {key: [[draw(rng) for _ in range(n)] for n in lengths] for key, draw in of_items.items()}
    if shared:
        columns[shared] = [columns[shared][groups.index(g)] for g in groups]
    return columns, groups


@pytest.mark.parametrize("name", METHODS)
def test_advantages_are_those_of_the_formula(name):
    some = False
    for seed in range(15):
        columns, groups = batch(name, seed)
        found = compiled(name)(columns, groups).advantages.numpy()
        np.testing.assert_allclose(found, METHODS[name][0](columns, groups), rtol=0, atol=1e-6)
        some |= bool(found.any())
    assert some


# Against public code


def of_core_gigpo(reward, episode, state, uid, trajectory, remove_std, cross_steps, gamma=0.95, epsilon=1e-6):
    """What gigpo/core_gigpo.py computes for flat steps, float32 as there; similarity off.

    One score alone in its group has mean 0 and deviation 1 among episodes; among steps its own mean.
    """
    steps = range(len(reward))
    returns = np.zeros(len(reward), dtype=np.float32)
    for one in set(trajectory):
        running = np.float32(0)
        for t in reversed([t for t in steps if trajectory[t] == one]):
            running = np.float32(reward[t]) + np.float32(gamma) * running
            returns[t] = running

    def norm(scores, key, counted, alone):
        out = np.zeros(len(scores), dtype=np.float32)
        for t in steps:
            values = np.array([scores[s] for s in counted if key[s] == key[t]], dtype=np.float32)
            mean, std = (values.mean(), values.std(ddof=1)) if len(values) > 1 else (alone(values), np.float32(1))
            out[t] = scores[t] - mean if remove_std else (scores[t] - mean) / (std + np.float32(epsilon))
        return out

    first = {trajectory[t]: t for t in reversed(steps)}
    counted = list(steps) if cross_steps else sorted(first.values())
    of_episodes = norm(np.array(episode, dtype=np.float32), uid, counted, alone=lambda _: np.float32(0))
    return of_episodes + norm(returns, list(zip(uid, state, strict=True)), steps, alone=lambda v: v.mean())


@pytest.mark.parametrize(
    ("name", "remove_std", "cross_steps"),
    [("gigpo", False, False), ("gigpo_mean", True, False), ("gigpo_steps", False, True)],
)
def test_gigpo_is_that_of_its_code(name, remove_std, cross_steps):
    """Where a group has two episodes, and values that differ: a lone one keeps its return in the code."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        groups = [g for g in range(3) for _ in range(4)]
        lengths = rng.integers(1, 6, len(groups)).tolist()
        reward = [rng.uniform(-1, 1, n).tolist() for n in lengths]
        state = [["kitchen", *rng.choice(["hall", "shelf", "sink"], n - 1).tolist()] for n in lengths]
        episode = rng.uniform(0, 10, len(groups)).tolist()
        rows = [i for i, n in enumerate(lengths) for _ in range(n)]
        flat = {"reward": np.concatenate(reward), "state": [one for row in state for one in row]}
        uid, values = [groups[i] for i in rows], [episode[i] for i in rows]
        expected = of_core_gigpo(flat["reward"], values, flat["state"], uid, rows, remove_std, cross_steps)
        columns = {"reward": reward, "state": state, "episode": episode}
        found = compiled(f"gigpo/{name}")(columns, groups).advantages
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
