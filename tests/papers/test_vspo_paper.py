"""VSPO (the PRS paper, Eq. 16-24): which groups are drawn again, and how hard they pull."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

import rewardspec
from rewardspec.emit.runtime.philox import philox, uniforms

SPECS = ROOT / "specs/vspo"
VSPO, LONG, UNIFORM, NO_CLIP, UNIFORM_NO_CLIP = (
    rewardspec.compile(SPECS / f"{name}.yaml")
    for name in ("vspo", "vspo_long", "uniform", "no_clip", "uniform_no_clip")
)
# Rewards of PRS: -1 unparsed, 0.1 parsed but for the answer, 1.1 + answer (short) or + judge (long). Four groups with
# spread, and two without.
GROUPS = [[1.1, 1.1, 1.1, 2.1], [-1, -1, -1, 2.1], [-1, 0.1, 1.1, 2.1], [2.0, 2.1, 2.1, 2.1], [-1] * 4, [2.1] * 4]
# Four groups of which each has a good chance to be drawn, and three whose places it then takes.
NEAR = [[0, 0, 0.1, 0.1], [-1, -1, 0, 0], [0, 0, 0, 0.1], [1.1, 1.1, 2.1, 2.1], [-1] * 4, [2.1] * 4, [0] * 4]


def columns(groups):
    """The columns of PRS's reward for the totals in `groups`; what the judge says is worth as much as the answer."""
    total = np.concatenate([np.asarray(g, dtype=float) for g in groups])
    process = np.where(total >= 1, 1.0, np.where(total >= 0, 0.0, -1.0))
    form = np.where((total == -1) | (total == 0), 0.0, 0.1)
    rest = np.clip(total - process - form, 0, 1)
    return {"process": process, "format": form, "answer": rest}


def long_columns(groups):
    """The same totals in the reward for long answers, Eq. 14: from the judge alone, with nothing for the answer."""
    found = columns(groups)
    assert set(found["answer"].round(6)) <= {0.0, 0.9, 1.0}
    with_format = np.where(found["answer"].round(6) == 0.9, 0.0, found["format"])  # 2.0 is 1 + 1, without the format
    judge = (found["answer"] > 0.5).astype(float)
    return {"process": found["process"], "format": with_format, "judge": judge, "answer": np.zeros_like(judge)}


def run(fn, groups, step, seed=0):
    ids = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    make = long_columns if "judge" in fn.spec.columns else columns
    return fn(make(groups), ids.tolist(), step=step, seed=seed)


def test_philox_is_numpys():
    for key, counter in (
        ((0, 0), (0, 0, 0, 0)),
        ((2**64 - 1, 7), (5, 2**40, 3, 1)),
        ((1, 2), (2**63, 0, 9, 2**64 - 1)),
    ):
        words = [np.array(words, dtype=np.uint64) for words in (key, counter)]
        expected = np.random.Philox(key=words[0], counter=words[1]).random_raw(4).tolist()
        assert list(philox(((counter[0] + 1) % 2**64, *counter[1:]), key)) == expected  # NumPy counts before it draws


def test_numbers_drawn_are_uniform_and_apart():
    numbers = np.array(uniforms(100_000, seed=3, step=5, purpose=0))
    observed = np.histogram(numbers, bins=50, range=(0, 1))[0]
    assert ((observed - 2000) ** 2 / 2000).sum() < 94.6  # chi-squared, 49 degrees of freedom, 0.9999
    assert uniforms(5, 3, 5, 0) == uniforms(9, 3, 5, 0)[:5]
    for other in ((4, 5, 0), (3, 6, 0), (3, 5, 1)):
        assert not set(uniforms(100, *other)) & set(numbers[:100])


def values(groups):
    """V of each group with variance (divisor G), Eq. 18; R_max is that of the whole batch."""
    most = max(max(g) for g in groups)
    return {i: (most - np.mean(g)) * np.var(g) for i, g in enumerate(groups) if np.var(g) >= 1e-6}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "temperature"), [(VSPO, 0.1), (LONG, 0.1), (NO_CLIP, 0.5), (UNIFORM, np.inf), (UNIFORM_NO_CLIP, np.inf)]
)
def test_draws_follow_the_softmax_of_values(fn, temperature):
    found = values(NEAR)
    odds = np.exp(np.array(list(found.values())) / temperature)
    drawn, runs = Counter(), 1500
    for step in range(runs):
        copies = run(fn, NEAR, step).copies.tolist()
        assert copies[4:] == [0, 0, 0]
        assert sum(copies) == len(NEAR)
        drawn.update({i: n - 1 for i, n in enumerate(copies[:4])})
    expected = 3 * runs * odds / odds.sum()
    assert expected.min() > 5
    observed = np.array([drawn[i] for i in range(4)])
    assert ((observed - expected) ** 2 / expected).sum() < 21.1  # 3 degrees of freedom, 0.9999


def test_drawing_depends_on_seed_and_step_alone():
    first = [run(VSPO, GROUPS * 4, step, seed).copies.tolist() for seed in (0, 1) for step in range(4)]
    assert first == [run(VSPO, GROUPS * 4, step, seed).copies.tolist() for seed in (0, 1) for step in range(4)]
    assert len({tuple(copies) for copies in first}) > 4
    torch.manual_seed(5)
    assert run(VSPO, GROUPS * 4, 0).copies.tolist() == first[0]
    assert run(VSPO, GROUPS * 4, 0, seed=2**70).copies.sum() == 24


def test_rounding_in_the_last_place_draws_the_same_groups():
    data = columns(GROUPS * 4)
    near = {
        name: np.nextafter(x.astype(np.float32), np.float32(1)) if name == "answer" else x for name, x in data.items()
    }
    for step in range(20):
        assert VSPO(near, 4, step=step).copies.equal(VSPO(data, 4, step=step).copies)


def test_interleaved_rollouts_draw_as_dense_ones():
    order = np.arange(24).reshape(6, 4).T.reshape(-1)
    data = columns(GROUPS)
    dense = VSPO(data, 4, step=2)
    mixed = VSPO({name: x[order] for name, x in data.items()}, (order // 4).tolist(), step=2)
    assert mixed.copies.equal(dense.copies)
    torch.testing.assert_close(mixed.advantages, dense.advantages[order])
    rows, advantages = mixed.refilled
    expected_rows, expected = dense.refilled
    assert torch.tensor(order)[rows].equal(expected_rows)
    torch.testing.assert_close(advantages, expected)


@pytest.mark.parametrize("groups", [[[-1] * 4, [2.1] * 4], [[-1, 2.1], [0, 0.1]]])
def test_nothing_is_drawn_where_no_group_or_every_group_is_kept(groups):
    """The paper's boundary cases: then all is as in GRPO."""
    out = run(VSPO, groups, step=0)
    plain = rewardspec.compile(rewardspec.load(SPECS / "vspo.yaml", advantage="grpo"))
    assert out.advantages.equal(run(plain, groups, step=0).advantages)
    rows, advantages = out.refilled
    assert rows.tolist() == list(range(len(out.advantages)))
    assert advantages.equal(out.advantages)


CLIPPED, NOT_CLIPPED = {1: 1, 2: 1.5, 3: 5 / 3}, {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    ("fn", "factors"),
    [
        (VSPO, CLIPPED), (LONG, CLIPPED), (UNIFORM, CLIPPED), (NO_CLIP, NOT_CLIPPED), (UNIFORM_NO_CLIP, NOT_CLIPPED)
    ],
)  # fmt: skip
def test_factor_of_one_two_and_three_copies(fn, factors):
    """Eq. 21 with alpha = 2; without the clip Eq. 20."""
    grpo = rewardspec.compile(rewardspec.load(SPECS / "vspo.yaml", advantage="grpo"))
    plain = run(grpo, NEAR, 0).advantages.view(7, 4)
    seen = set()
    for step in range(40):
        out = run(fn, NEAR, step)
        for group, n in enumerate(out.copies.tolist()[:4]):
            if n > 3:
                continue
            seen.add(n)
            factor = out.advantages.view(7, 4)[group] / plain[group]
            torch.testing.assert_close(factor, torch.full_like(factor, factors[n]))
    assert seen == {1, 2, 3}


def clipped_objective(logits, old, actions, advantages):
    """The sum over rollouts of min(w A, clip(w, 0.8, 1.2) A), w the ratio of the policies' probabilities."""
    ratio = torch.softmax(logits, -1).gather(1, actions[:, None])[:, 0] / old
    return torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()


@pytest.mark.parametrize("fn", [VSPO, LONG, UNIFORM, NO_CLIP, UNIFORM_NO_CLIP])
def test_moved_rows_and_weights_give_the_same_gradient(fn):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(24, 5, generator=generator, dtype=torch.float64)
    actions = torch.randint(0, 3, (24,), generator=generator)
    weights = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    old = torch.softmax(features @ weights.detach() + 0.3 * torch.randn(24, 3, generator=generator), -1)
    old = old.gather(1, actions[:, None])[:, 0]
    for step in range(5):
        out = run(fn, GROUPS, step)
        assert out.copies.max() > 1
        rows, advantages = out.refilled
        assert len(rows) == 24
        assert not (out.advantages[rows] == 0).all(-1)
        weighted = clipped_objective(features @ weights, old, actions, out.advantages.double())
        moved = clipped_objective((features @ weights)[rows], old[rows], actions[rows], advantages.double())
        (expected,), (found,) = torch.autograd.grad(weighted, weights), torch.autograd.grad(moved, weights)
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.1, 1.1, 1.6, 2.1]), min_size=1, max_size=5), min_size=1, max_size=8)
)
def test_places_are_filled_whatever_the_groups(groups):
    out = run(VSPO, groups, step=1)
    kept = [np.var(g) >= 1e-6 for g in groups]
    assert out.kept.tolist() == kept
    copies = out.copies
    assert copies.gt(0).tolist() == kept
    assert copies.sum() == (len(groups) if any(kept) else 0)
    rows, advantages = out.refilled
    assert len(rows) == len(advantages)
    assert torch.isfinite(advantages).all()
    total = torch.zeros_like(out.advantages).index_add_(0, rows, advantages)
    torch.testing.assert_close(total, out.advantages)


def test_drawing_without_a_step_is_an_error():
    with pytest.raises(ValueError, match=r"pass `step=`"):
        VSPO(columns(GROUPS), 4)


def test_keep_alone_leaves_rows_out():
    text = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nkeep: std(a) > 0\nadvantage: grpo / copies\n"
    out = rewardspec.compile(rewardspec.loads(text))({"a": [1, 1, 0, 1, 0, 0]}, 2)
    assert out.copies.tolist() == [0, 1, 0]
    assert out.refilled[0].tolist() == [2, 3]
    assert rewardspec.compile(rewardspec.loads(text))({"a": [1, 1]}, 2).refilled[0].tolist() == []
