"""The fused kernels: slabs of groups, declared values that are far apart, and the check of columns as a whole."""

import math

import numpy as np
import pytest
import torch
from reference import formulas as ref

import rewardspec

NAN = math.nan


def compiled(body):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + body))


def gdpo(domain, **weights):
    lines = "".join(f"  {name}: {{{domain}, weight: {weight}}}\n" for name, weight in weights.items())
    return f"components:\n{lines}advantage: gdpo\n"


WEIGHTS = {"a": 1.0, "b": -0.5, "c": 2.0}
SPREAD_OUT = pytest.mark.parametrize(
    ("domain", "values"),
    [
        ("values: [0, 1]", [0.0, 1.0]),
        ("values: [-1, 0, 0.1, 0.7]", [-1.0, 0.0, 0.1, 0.7]),
        ("values: [1000, 1001]", [1000.0, 1001.0]),
        ("range: [0, 2000]", [0.0, 0.1, 1.5, 2000.0]),
    ],
)


def random_columns(values, n, kind, seed=0):
    rng = np.random.default_rng(seed)
    columns = {name: torch.tensor(rng.choice(values, n)).to(kind) for name in WEIGHTS}
    return columns, {name: x.double().numpy() for name, x in columns.items()}


def normalised(columns, weights, size, eps=1e-6):
    """GDPO of groups that are all of one size, in NumPy: quicker than the reference."""
    total = 0
    for name, x in columns.items():
        x = x.reshape(-1, size)
        away = x - x.mean(1, keepdims=True)
        std = np.where(np.ptp(x, 1, keepdims=True) > 0, x.std(1, ddof=1, keepdims=True), np.inf)
        total = total + weights[name] * away / (std + eps)
    return (total / (total.std(ddof=1) + eps)).ravel()


@pytest.mark.slow
@SPREAD_OUT
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64])
def test_groups_in_several_slabs(domain, values, kind):
    if kind is torch.bfloat16:
        values = [0.0, 1.0]
        domain = domain if domain.startswith("range") else "values: [0, 1]"
    columns, wide = random_columns(values, 2**17 + 2**14, kind)  # 4.5 times what fits into one, of 3 components
    actual = compiled(gdpo(domain, **WEIGHTS))(columns, 16).advantages
    expected = normalised(wide, WEIGHTS, 16)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 if kind is torch.float64 else 2e-6)


@SPREAD_OUT
@pytest.mark.parametrize("n", [1200, pytest.param(200_000, marks=pytest.mark.slow)])
def test_groups_of_many_sizes_with_weights_of_their_own(domain, values, n):
    text = "signals:\n  hard: {range: [0, 1], level: group}\n  price: {range: [0, 1], level: batch}\n" + gdpo(
        domain, a="1 + hard", b="1 - price", c=2
    )
    sizes = np.resize([1, 3, 8, 49, 1, 3, 5, 16], 10**5)
    labels = np.repeat(np.arange(len(sizes)), sizes)[:n]
    columns, wide = random_columns(values, n, torch.float32)
    hard = np.random.default_rng(1).choice([0.0, 0.25, 1.0], labels[-1] + 1)[labels]
    actual = compiled(text)({**columns, "hard": hard.astype(np.float32), "price": 0.75}, labels).advantages
    if n < 10_000:
        decoupled = sum(
            weight * ref.zscore(wide[name], labels) for name, weight in [("a", 1 + hard), ("b", 0.25), ("c", 2)]
        )
        expected = decoupled / (decoupled.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    order = np.random.default_rng(2).permutation(n)
    mixed = {name: x[order] for name, x in columns.items()} | {"hard": hard[order].astype(np.float32), "price": 0.75}
    np.testing.assert_allclose(compiled(text)(mixed, labels[order]).advantages, actual[order], rtol=0, atol=1e-6)


@pytest.mark.slow
@SPREAD_OUT
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [3, 16, 49, 1000])  # 49 * (1 / 49) is not 1
def test_groups_of_equal_values_are_zero_beside_others(domain, values, kind, size):
    columns, _ = random_columns(values, 20 * size, kind)
    for x in columns.values():
        x.view(20, size)[::2] = torch.tensor(values, dtype=kind).repeat(5)[:10, None]
    out = compiled(gdpo(domain, **WEIGHTS))(columns, size).advantages.view(20, size)
    assert not out[::2].any() and out[1::2].any(1).all()


@pytest.mark.parametrize(
    ("domains", "apart"),
    [
        (["values: [0, 1]", "values: [0, 0.5, 1]"], "apart=0.5"),
        (["values: [0, 1]", "values: [-3, 3]"], "apart=1.0"),
        (["values: [0, 1]", "range: [0, 1]"], None),
        (["values: [0, 1]", "values: [0, 2000]"], None),
        (["values: [0, 0.0001, 1]", "values: [0, 1]"], None),
        (["values: [0, 1]", "expr: 0.1 * b"], None),  # computed
    ],
)
def test_only_declared_values_are_known_to_be_far_apart(domains, apart):
    lines = "".join(f"  {name}: {{{domain}}}\n" for name, domain in zip("ab", domains, strict=True))
    lines = lines.replace("0.1 * b", "0.1 * s")
    source = compiled(f"signals:\n  s: {{values: [0, 1]}}\ncomponents:\n{lines}advantage: gdpo\n").source
    assert (apart in source) if apart else ("apart=" not in source.split("COLUMNS")[1])


def test_close_values_beside_one_far_off_keep_their_spread():
    text = "components:\n  a: {range: [0, 1000000]}\n  b: {range: [0, 1]}\nadvantage: gdpo\nnumerics: {eps: 0}\n"
    columns = {"a": torch.tensor([1e6, 1e6 + 1, 1e6, 1e6 + 1]) - 1, "b": torch.zeros(4)}
    np.testing.assert_allclose(compiled(text)(columns, 4).advantages, [-(0.75**0.5), 0.75**0.5] * 2, rtol=1e-6)


ONE = torch.tensor(1.0)
NEITHER = [0.5, -1.0, 2.0, 1e-30, 1e-45, -1e-45, math.inf, -math.inf, NAN, 1e20]


@pytest.mark.slow
@pytest.mark.parametrize("value", [*NEITHER, *(ONE + d for d in (2.0**-20, -(2.0**-20)))])
@pytest.mark.parametrize("n", [8, 40_000, 140_000])
def test_one_value_among_many_that_is_neither_0_nor_1_is_refused(value, n):
    fn = compiled("components: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: center(a)\n")
    a = torch.arange(n).remainder(2).float()
    fn({"a": a, "b": a}, 2)
    wrong = a.clone()
    wrong[n - 3] = value
    for columns in ({"a": wrong, "b": a}, {"a": a, "b": wrong}):
        with pytest.raises(ValueError, match=f"rollout {n - 3} "):
            fn(columns, 2)


def test_zero_with_a_sign_and_values_within_rounding_are_as_declared():
    fn = compiled("components: {a: {values: [0, 1]}}\nadvantage: center(a)\n")
    a = torch.tensor([-0.0, 1.0, 0.0, 1 - 2.0**-24])
    assert fn({"a": a}, 4).advantages.tolist() == [-0.5, 0.5, -0.5, 0.5]


def test_large_advantages_are_finite_though_their_sum_is_not():
    fn = compiled("components: {a: {range: [0, .inf]}}\nadvantage: a\n")
    assert fn({"a": torch.full((4,), 3e38)}, 2).advantages.isfinite().all()
    with pytest.raises(ValueError, match="rollout 1 of group 0"):
        compiled("components: {a: {range: [0, .inf]}}\nadvantage: a * 10\n")({"a": torch.tensor([0, 3e38])}, 2)
