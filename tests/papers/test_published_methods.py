"""Every published spec against the NumPy reference of its formula: ragged, interleaved, all right, all wrong, alone."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ, SPECS
from reference import formulas as ref

import rewardspec

many = settings(max_examples=150 * FUZZ)


@cache
def compiled(name):
    return rewardspec.compile(SPECS / f"{name}.yaml")


def agree(name, columns, groups, expected, **given):
    """Both float types; what is compared with is computed from the values that they hold.

    In a batch of groups whose z-scores cancel but for eps, shares are a million: float32 rounds them.
    """
    out = compiled(name)(columns, groups, **given)
    assert out.advantages.dtype is torch.float64
    np.testing.assert_allclose(out.advantages.numpy(), expected, rtol=0, atol=1e-9)
    largest = max((float(share.abs().max()) for share in (out.shares or {}).values()), default=0.0)
    narrow = {key: torch.tensor(x, dtype=torch.float32) for key, x in columns.items()}
    actual = compiled(name)(narrow, groups, **given).advantages
    assert actual.dtype is torch.float32
    np.testing.assert_allclose(actual.double().numpy(), expected, rtol=0, atol=2e-4 + 1e-6 * largest)


@st.composite
def rollouts(draw, **values):
    """Columns [N] of the given values (or of a range, a pair of floats), and ids of ragged, interleaved groups.

    Some groups are alike throughout; some are of one rollout.
    """
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = {}
    for name, domain in values.items():
        if isinstance(domain, list):
            x = rng.choice(domain, len(groups)).astype(float)
        else:
            x = np.round(rng.uniform(*domain, len(groups)) * 64) / 64  # float32 holds them
        alike = rng.random(len(sizes)) < 0.4
        for group in np.flatnonzero(alike):
            x[groups == group] = x[groups == group][0]
        columns[name] = x
    order = rng.permutation(len(groups)) if draw(st.booleans()) else np.arange(len(groups))
    return {name: x[order] for name, x in columns.items()}, groups[order].tolist()


@pytest.mark.slow
@many
@given(rollouts(correct=[0, 1], tokens=[0, 4000, 4001, 9000]), st.sampled_from(["", "_grpo", "_dr_grpo", "_decoupled"]))
@pytest.mark.parametrize("conditioned", [False, True])
def test_gdpo_math(conditioned, batch, suffix):
    columns, groups = batch
    length = (columns["tokens"] <= 4000).astype(float)
    if conditioned:  # Eq. 8
        length = np.where(columns["correct"] >= 1, length, 0.0)
    rewards = {"correct": columns["correct"], "length": length}
    expected = ref.SCHEMES[suffix[1:] or "gdpo"](rewards, {"correct": 1, "length": 1}, groups)
    agree(f"gdpo/math{'_conditioned' * conditioned}{suffix}", columns, groups, expected)


@pytest.mark.slow
@many
@given(rollouts(format=[0, 1], correctness=(-3.0, 3.0)), st.sampled_from(["", "_grpo", "_dr_grpo", "_decoupled"]))
def test_gdpo_tool_calling(batch, suffix):
    columns, groups = batch
    expected = ref.SCHEMES[suffix[1:] or "gdpo"](columns, dict.fromkeys(columns, 1), groups)
    agree(f"gdpo/tool_calling{suffix}", columns, groups, expected)


@pytest.mark.slow
@many
@given(
    rollouts(pass_rate=[0, 0.25, 0.5, 1], tokens=[10, 4000, 5000], no_error=[0, 1]),
    st.sampled_from(["", "_grpo", "_dr_grpo", "_decoupled"]),
)
def test_gdpo_code(batch, suffix):
    columns, groups = batch
    length = np.where(columns["pass_rate"] >= 1, columns["tokens"] <= 4000, 0.0)
    rewards = {"pass_rate": columns["pass_rate"], "length": length, "no_error": columns["no_error"]}
    expected = ref.SCHEMES[suffix[1:] or "gdpo"](rewards, dict.fromkeys(rewards, 1), groups)
    agree(f"gdpo/code{suffix}", columns, groups, expected)


@pytest.mark.slow
@many
@given(rollouts(pass_rate=[0, 0.25, 0.5, 1], tokens=[10, 4000, 5000]), st.sampled_from(["", "_grpo"]))
def test_gdpo_code_with_two_rewards(batch, suffix):
    columns, groups = batch
    rewards = {"pass_rate": columns["pass_rate"]}
    rewards["length"] = np.where(columns["pass_rate"] >= 1, columns["tokens"] <= 4000, 0.0)
    expected = ref.SCHEMES[suffix[1:] or "gdpo"](rewards, dict.fromkeys(rewards, 1), groups)
    agree(f"gdpo/code_two{suffix}", columns, groups, expected)


@pytest.mark.slow
@many
@given(rollouts(correct=[0, 1], tokens=[0, 4000, 4001, 9000], no_error=[0, 1]))
@pytest.mark.parametrize("name", ["math", "math_conditioned", "code"])
def test_gdpo_with_groups_filtered_by_the_sum(name, batch):
    """App. E: verl leaves out groups whose sums are alike before anything is normalised, the batch step included."""
    columns, groups = batch
    length = (columns["tokens"] <= 4000).astype(float)
    rewards = {"correct": columns["correct"], "length": length if name == "math" else length * columns["correct"]}
    if name == "code":
        rewards["no_error"] = columns["no_error"]
        columns = {**columns, "pass_rate": columns["correct"]}
    sums, ids = sum(rewards.values()), np.array(groups)
    live = np.array([len(set(sums[ids == group])) > 1 for group in groups])
    expected = np.zeros(len(groups))
    if live.any():
        inside = {key: x[live] for key, x in rewards.items()}
        expected[live] = ref.gdpo(inside, dict.fromkeys(inside, 1), ids[live].tolist())
    agree(f"gdpo/{name}_filtered", columns, groups, expected)


METHODS = ["original", "equal_max", "two_stage", "smooth", "length", "length_dynamic"]


@pytest.mark.slow
@many
@given(
    rollouts(format=[0, 1], correctness=(-3.0, 3.0), think_words=[0, 100, 512, 700, 2000]),
    st.sampled_from([0, 29, 30, 64, 128]),
)
@pytest.mark.parametrize("method", METHODS)
def test_toolrl(method, batch, step):
    columns, groups = batch
    words = columns["think_words"]
    expected = ref.toolrl(method, columns["format"], columns["correctness"], groups, words, step, total_steps=128)
    agree(f"toolrl/{method}", columns, groups, expected, step=step, total_steps=128)


@pytest.mark.slow
@many
@given(rollouts(outcome=[0, 1], process=[0, 0.5, 1]), st.booleans())
@pytest.mark.parametrize("method", ["orm", "prm", "mult", "fullnorm", "papo"])
def test_papo(method, batch, judged):
    columns, groups = batch
    if not judged and method != "prm":  # wrong answers are not shown to the judge
        columns["process"] = np.where(columns["outcome"] == 1, columns["process"], np.nan)
    agree(f"papo/{method}", columns, groups, ref.papo(method, columns["outcome"], columns["process"], groups))


@pytest.mark.slow
@many
@given(rollouts(correct=[0, 1], process=[0, 0.5, 1], tokens=[10, 4096, 6144, 7168, 8192, 9000]))
def test_papo_on_dapo(batch):
    columns, groups = batch
    expected = ref.papo_dapo(columns["correct"], columns["process"], columns["tokens"], groups)
    agree("papo/papo_dapo", columns, groups, expected)


@pytest.mark.slow
@many
@given(rollouts(correct=[0, 1], tokens=[10, 4096, 6144, 7168, 8192, 9000]))
def test_outcome_on_dapo(batch):
    """Groups of right answers, or of wrong ones, are left out; the others have GRPO on outcome and penalty."""
    columns, groups = batch
    penalty = -np.clip((columns["tokens"] - 4096) / 4096, 0, 1)
    differs = ref.std(columns["correct"], groups) > 0
    found = ref.advantage_of(columns["correct"] + penalty, groups, [columns["correct"], penalty])
    agree("papo/orm_dapo", columns, groups, np.where(differs, found, 0.0))


@pytest.mark.slow
@many
@given(rollouts(correct=[0, 1]))
@pytest.mark.parametrize("name", ["zero_one", "long_zero_one"])
def test_zero_one_reward(name, batch):
    columns, groups = batch
    agree(f"prs/{name}", columns, groups, ref.advantage_of(columns["correct"], groups, ddof=0))


@pytest.mark.slow
@many
@given(rollouts(process=[-1, 0, 1], format=[0, 0.1], judge=[0, 1], answer=(0.0, 1.0)))
def test_prs(batch):
    columns, groups = batch
    process, form, judge, answer = (columns[name] for name in ("process", "format", "judge", "answer"))
    short, long = ref.prs_short(process, form, answer), ref.prs_long(process, form, judge, answer)
    ones = np.ones_like(process)
    agree("prs/short", columns, groups, ref.advantage_of(short, groups, [ones], ddof=0, ulp=4e-7))
    agree("prs/long", columns, groups, ref.advantage_of(long, groups, [ones], ddof=0, ulp=4e-7))


@pytest.mark.slow
@many
@given(rollouts(r1=(-2.0, 3.0), r2=(-2.0, 2.0), r3=(-2.0, 2.0), r4=(-2.0, 2.0)))
def test_prs_general(batch):
    columns, groups = batch
    total = ref.prs_general(list(columns.values()), [1, 0.5, 0.5])
    agree("prs/general", columns, groups, ref.advantage_of(total, groups, [columns["r1"]], ddof=0, ulp=4e-7))


@pytest.mark.slow
@many
@given(rollouts(process=[-1, 0, 1], format=[0, 0.1], judge=[0, 1], answer=[0, 0.25, 1]), st.integers(0, 1000))
@pytest.mark.parametrize("method", ["vspo", "vspo_long", "uniform", "no_clip", "uniform_no_clip"])
def test_vspo(method, batch, step):
    columns, groups = batch
    names = ("process", "format", "answer") if method == "vspo" else ("process", "format", "judge", "answer")
    reward = ref.prs_short if method == "vspo" else ref.prs_long
    total = reward(*(columns[name] for name in names))
    out = compiled(f"vspo/{method}")(columns, groups, step=step, seed=1)
    copies = dict(zip(dict.fromkeys(groups), out.copies.tolist(), strict=True))
    assert sum(copies.values()) == (len(copies) if any(copies.values()) else 0)
    expected = ref.vspo(total, groups, copies, clip="no_clip" not in method, parts=[np.ones_like(total)])
    np.testing.assert_allclose(out.advantages.numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.slow
@many
@given(rollouts(state=[0, 1], action=[0, 1]))
def test_rc_grpo(batch):
    columns, groups = batch
    agree("rc_grpo/rc_grpo", columns, groups, ref.rc_grpo(columns["state"], columns["action"], groups))
