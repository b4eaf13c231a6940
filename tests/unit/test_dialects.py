"""`compile(spec, dialect=...)` gives a trainer's built-in numbers.

TRL and verl are called, from their installed code. OpenRLHF and NeMo-RL are not in this environment: their numbers are
from formulas read off their source (OpenRLHF 0.11.2 `compute_advantages_and_returns`; NeMo-RL
`advantage_estimator.py` and `calculate_baseline_and_std_per_prompt`), in float64. tests/openrlhf calls OpenRLHF.
"""

import numpy as np
import pytest
import torch
from peers import trl_advantages, trl_rloo, verl_estimator, verl_gdpo

pytest.importorskip("trl")
pytest.importorskip("verl")

import rewardspec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # what importing a trainer says is not about us
]

NAMES, WEIGHTS = "abc", [1.0, 0.3, -2.0]
SEEDS = pytest.mark.parametrize("seed", range(3))
SIZES = pytest.mark.parametrize("size", [2, 4, 16])


def compiled(scheme, dialect):
    components = "".join(
        f"  {name}: {{range: [-.inf, .inf], missing: ignore, weight: {weight}}}\n"
        for name, weight in zip(NAMES, WEIGHTS, strict=True)
    )
    # what `numerics` says gives way to the dialect
    text = f"rewardspec: 1\nnumerics: {{eps: 0.5, ddof: 0}}\ncomponents:\n{components}advantage: {scheme}\n"
    return rewardspec.compile(rewardspec.loads(text), dialect=dialect)


def batch(seed, size, groups=10):
    """Rewards [N, 3] float32 without rounding noise (multiples of 1/8), and response lengths [N]."""
    rng = np.random.default_rng(seed)
    n = groups * size
    rewards = np.stack([rng.integers(0, 2, n), rng.choice([0, 0.25, 0.5, 1], n), rng.integers(-16, 17, n) / 8], 1)
    rewards[:size] = [1, 0.25, -0.5]
    return torch.tensor(rewards, dtype=torch.float32), torch.tensor(rng.integers(1, 40, n)).float()


def run(scheme, dialect, rewards, tokens, groups):
    columns = {name: rewards[:, k].contiguous() for k, name in enumerate(NAMES)} | {"tokens": tokens}
    return compiled(scheme, dialect)(columns, groups).advantages


def close(actual, expected, atol=1e-5):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    assert expected.abs().max() > 0.5
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=atol)


# TRL


TRL = {
    "grpo": lambda r, g: trl_advantages(r, torch.tensor(WEIGHTS), g, "sum_then_normalize"),
    "batch_grpo": lambda r, g: trl_advantages(r, torch.tensor(WEIGHTS), g, "sum_then_normalize", "batch"),
    "dr_grpo": lambda r, g: trl_advantages(r, torch.tensor(WEIGHTS), g, "sum_then_normalize", "none"),
    "gdpo": lambda r, g: trl_advantages(r, torch.tensor(WEIGHTS), g, "normalize_then_sum"),
    "rloo": lambda r, g: trl_rloo(r, torch.tensor(WEIGHTS), g),
    "whiten(rloo)": lambda r, g: trl_rloo(r, torch.tensor(WEIGHTS), g, normalize=True),
}


@pytest.mark.slow
@SEEDS
@SIZES
@pytest.mark.parametrize("scheme", TRL)
def test_trl(scheme, size, seed):
    rewards, tokens = batch(seed, size)
    close(run(scheme, "trl", rewards, tokens, size), TRL[scheme](rewards, size))


@SEEDS
@pytest.mark.parametrize("scheme", [scheme for scheme in TRL if scheme != "whiten(rloo)"])
def test_trl_leaves_missing_rewards_out_of_the_sum(scheme, seed):
    rewards, tokens = batch(seed, 8)
    rewards[torch.tensor(np.random.default_rng(seed).random(rewards.shape) < 0.3)] = float("nan")
    rewards[3] = float("nan")  # nothing was measured: no part in anything, advantage 0
    actual = run(scheme, "trl", rewards, tokens, 8)
    assert actual[3] == 0
    close(actual, TRL[scheme](rewards, 8))


# verl


RAGGED = [2, 3, 8, 5, 2, 16, 4]


@SEEDS
@pytest.mark.parametrize(
    ("scheme", "estimator"),
    [
        ("grpo", "grpo"),
        ("grpo", "grpo_vectorized"),
        ("rloo", "rloo"),
        ("reinforce_baseline", "reinforce_plus_plus_baseline"),
    ],
)
def test_verl(scheme, estimator, seed):
    index = np.random.default_rng(seed).permutation(np.repeat([f"uid {i}" for i in range(len(RAGGED))], RAGGED))
    rewards, tokens = batch(seed, 1, groups=len(index))
    totals = (rewards * torch.tensor(WEIGHTS)).sum(1)
    expected = verl_estimator(estimator, totals, tokens, index.astype(object))
    close(run(scheme, "verl", rewards, tokens, index), expected)


@pytest.mark.slow
@SEEDS
@SIZES
def test_verl_gdpo_whitens_over_tokens(size, seed):
    rewards, tokens = batch(seed, size)
    expected = verl_gdpo(rewards, WEIGHTS, size, tokens)
    close(run("gdpo", "verl", rewards, tokens, size), expected)
    plain = compiled("gdpo", None)({name: rewards[:, k] for k, name in enumerate(NAMES)}, size).advantages
    assert (plain - expected).abs().max() > 0.01  # the dialect matters here


# OpenRLHF


def openrlhf(estimator, totals, tokens, size):
    """Advantages [N] in float64; the whitening of `reinforce_baseline` is over all response tokens."""
    r = totals.double().view(-1, size)
    if estimator == "rloo":
        return (r - (r.sum(-1, keepdim=True) - r) / (size - 1)).view(-1)
    a = (r - r.mean(-1, keepdim=True)) / (r.std(-1, keepdim=True) + 1e-9 if estimator == "group_norm" else 1)
    a = a.view(-1)
    if estimator == "reinforce_baseline":
        count, tokens = tokens.sum(), tokens.double()
        mean = (a * tokens).sum() / count
        a = (a - mean) * (((a - mean) ** 2 * tokens).sum() / count).clamp(min=1e-8).rsqrt()
    return a


@SEEDS
@SIZES
@pytest.mark.parametrize(
    ("scheme", "estimator"),
    [("grpo", "group_norm"), ("dr_grpo", "dr_grpo"), ("rloo", "rloo"), ("reinforce_baseline", "reinforce_baseline")],
)
def test_openrlhf(scheme, estimator, size, seed):
    rewards, tokens = batch(seed, size)
    totals = (rewards.double() * torch.tensor(WEIGHTS, dtype=torch.float64)).sum(1)
    expected = openrlhf(estimator, totals, tokens, size)
    close(run(scheme, "openrlhf", rewards, tokens, size), expected)


# NeMo-RL


def nemo_group(r):
    """[N] of one reward [P, G]: mean and deviation (divisor n - 1) of the other G - 1 rollouts."""
    size = r.shape[1]
    others = torch.stack([r[:, torch.arange(size) != i] for i in range(size)], 1)
    std = others.std(-1) if size > 2 else torch.zeros_like(r)
    a = r - others.mean(-1)
    return torch.where(std > 0, a / (std + 1e-6), a).view(-1)


def nemo(estimator, rewards, tokens, size):
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    parts = [r.double().view(-1, size) for r in rewards.T]
    total = sum(w * r for w, r in zip(weights, parts, strict=True))
    if estimator == "grpo":
        return nemo_group(total)
    if estimator == "dr_grpo":  # normalize_rewards: false
        return (total - (total.sum(-1, keepdim=True) - total) / (size - 1)).view(-1)
    if estimator == "gdpo":
        a = sum(w * nemo_group(r) for w, r in zip(weights, parts, strict=True))
        return (a - a.mean()) / a.std()
    a, tokens = (total - total.mean(-1, keepdim=True)).view(-1), tokens.double()
    mean = (a * tokens).sum() / tokens.sum()
    return (a - mean) * (((a - mean) ** 2 * tokens).sum() / tokens.sum()).clamp(min=1e-8).rsqrt()


@pytest.mark.slow
@SEEDS
@SIZES
@pytest.mark.parametrize("scheme", ["grpo", "dr_grpo", "gdpo", "reinforce_baseline"])
def test_nemo_rl(scheme, size, seed):
    rewards, tokens = batch(seed, size)
    close(run(scheme, "nemo_rl", rewards, tokens, size), nemo(scheme, rewards, tokens, size), atol=3e-5)


def test_nemo_rl_does_not_divide_where_the_others_are_alike():
    actual = run("grpo", "nemo_rl", torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]), torch.ones(4), 4)
    # the first against 0, 0, 0: 1; the rest against 1, 0, 0: mean 1/3, deviation 0.57735
    assert actual.tolist() == pytest.approx([1, *[-0.57735] * 3], abs=1e-4)


# What a dialect is


def test_dialect_needs_the_response_lengths_where_the_trainer_whitens_over_tokens():
    assert "tokens" in compiled("gdpo", "verl").spec.columns
    assert "tokens" not in compiled("grpo", "verl").spec.columns
    with pytest.raises(ValueError, match="column `tokens` is missing"):
        compiled("gdpo", "verl")({name: [0.0, 1.0] for name in NAMES}, 2)


def test_dialect_reads_the_column_of_the_specs_own_signal():
    text = "rewardspec: 1\nsignals: {tokens: {range: [0, 9]}}\ncomponents: {a: {values: [0, 1]}}\nadvantage: gdpo\n"
    fn = rewardspec.compile(rewardspec.loads(text), dialect="verl")
    with pytest.raises(ValueError, match="`tokens` is 10"):
        fn({"a": [0, 1], "tokens": [10, 1]}, 2)


def test_dialect_that_whitens_by_tokens_says_that_it_has_none_of_items():
    text = """rewardspec: 1
lists: {turn: {}}
signals: {called: {values: [0, 1], level: turn}}
components: {tool: {expr: called}, correct: {values: [0, 1]}}
advantage: gdpo
"""
    for dialect in ("verl", "openrlhf"):
        with pytest.raises(rewardspec.SpecError) as error:
            rewardspec.loads(text).under(dialect)
        (said,) = error.value.diagnostics
        assert said.message == (
            f"the dialect `{dialect}` whitens by `tokens`, one number for each rollout, and this is one for each turn"
        )
        assert "`decoupled`" in said.help and said.span.text == "gdpo"
    for dialect in ("trl", "nemo_rl"):
        rewardspec.loads(text).under(dialect)


def test_dialect_that_does_not_go_with_a_spec_is_an_error():
    text = (
        "rewardspec: 1\nsignals: {tokens: {values: [few, many]}}\ncomponents: {a: {values: [0, 1]}}\nadvantage: gdpo\n"
    )
    spec = rewardspec.loads(text)
    with pytest.raises(rewardspec.SpecError, match="dialect-column"):
        rewardspec.compile(spec, dialect="verl")
    rewardspec.compile(spec, dialect="trl")
    with pytest.raises(ValueError, match="there are nemo_rl, openrlhf, trl, verl"):
        rewardspec.compile(spec, dialect="verrl")


def test_dialect_is_no_part_of_the_spec():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {a: {range: [0, 1]}}\nadvantage: grpo\n")
    plain = spec.fingerprint
    found = {
        dialect: rewardspec.compile(spec, dialect=dialect).spec for dialect in ("trl", "verl", "openrlhf", "nemo_rl")
    }
    assert spec.fingerprint == plain
    assert spec.dialect is None
    assert all(s.dialect == dialect for dialect, s in found.items())
    assert len({s.fingerprint for s in found.values()}) == 4
    assert found["verl"].fingerprint == plain  # the language's own defaults are verl's here


def test_what_is_defined_in_a_spec_stays_its_own_under_a_dialect():
    text = "rewardspec: 1\ncomponents: {a: {range: [0, 1]}}\ndefine: {total: 2 * a}\nadvantage: total - mean(total)\n"
    columns = {"a": [0, 0.25, 1]}
    for dialect in (None, "trl", "nemo_rl"):
        fn = rewardspec.compile(rewardspec.loads(text), dialect=dialect)
        assert fn(columns, 3).advantages.tolist() == pytest.approx([-0.8333, -0.3333, 1.1667], abs=1e-4)


# Statistics of the others


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 40])
def test_std_of_the_others(size, ddof):
    text = f"rewardspec: 1\ncomponents: {{a: {{range: [-.inf, .inf]}}}}\nadvantage: std_others(a, ddof={ddof})\n"
    fn = rewardspec.compile(rewardspec.loads(text))
    rng = np.random.default_rng(size)
    rows = [rng.normal(size=size), np.full(size, 0.1), rng.integers(0, 2, size), 1e6 + rng.normal(size=size)]
    rows += [np.where(np.arange(size) == 0, 1e5, rng.normal(size=size) * 1e-3)]
    x = np.stack(rows)
    expected = [[np.delete(row, i).std(ddof=ddof) if size > 2 else 0 for i in range(size)] for row in x]
    actual = fn({"a": x.reshape(-1)}, size).advantages.view(len(rows), size).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-12)
    assert not actual[1].any()


def test_std_of_the_others_in_a_subset():
    text = """rewardspec: 1
signals: {m: {values: [0, 1]}}
components: {a: {range: [0, 9], missing: ignore}}
advantage: coalesce(std_others(a, where=m), -1)
"""
    fn = rewardspec.compile(rewardspec.loads(text))
    out = fn({"a": [1, 2, 4, 9, None, 3], "m": [1, 1, 1, 0, 1, 1]}, 6).advantages
    expected = [np.std(others, ddof=1) for others in ([2, 4, 3], [1, 4, 3], [1, 2, 3])]
    assert out.tolist() == pytest.approx([*expected, -1, 0, np.std([1, 2, 4], ddof=1)], abs=1e-5)
