"""The six laws of the language (grammar/LANGUAGE.md)."""

import importlib.util

import numpy as np
import pytest
import reference
import torch

import rewardspec

SCHEMES = sorted(reference.SCHEMES)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def compiled(body):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + body))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [0.1, 0.7, 1e6 + 0.1])
def test_equal_rewards_give_exact_zeros(scheme, value):
    fn = compiled(f"components: {{a: {{range: [-.inf, .inf]}}}}\nadvantage: {scheme}\n")
    columns = [torch.full((8,), value, dtype=d) for d in DTYPES if value < torch.finfo(d).max] + [[value] * 8]
    for column in columns:
        for groups in (8, 4, [0, 1, 0, 1, 1, 0, 2, 1]):
            assert (fn({"a": column}, groups).advantages == 0).all()


@pytest.mark.parametrize("scheme", ["grpo", "dr_grpo", "rloo", "batch_grpo", "reinforce_baseline"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_that_differ_by_rounding_have_no_spread(scheme, dtype):
    fn = compiled(f"components: {{a: {{range: [0, 1]}}, b: {{range: [0, 1]}}}}\nadvantage: {scheme}\n")
    a, b = [0.1, 0.7, 0.0, 0.6], [0.6, 0.0, 0.7, 0.1]
    out = fn({"a": torch.tensor(a, dtype=dtype), "b": torch.tensor(b, dtype=dtype)}, 4)
    assert (out.advantages == 0).all()


def test_small_spread_beside_a_large_constant_is_spread():
    fn = compiled("components: {a: {range: [0, .inf]}, b: {range: [0, 1]}}\nadvantage: grpo\n")
    out = fn({"a": torch.full((8,), 1e6), "b": torch.tensor([1.0] + [0.0] * 7)}, 8)
    assert out.advantages[0] == pytest.approx(2.4749, abs=1e-3)  # (1 - 1/8) / sqrt(1/8)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ddof", [0, 1])
def test_one_rollout_has_no_spread(scheme, ddof):
    fn = compiled(f"components: {{a: {{range: [0, 9]}}}}\nnumerics: {{ddof: {ddof}}}\nadvantage: {scheme}\n")
    assert fn({"a": [3.0]}, 1).advantages.tolist() == [0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_order_does_not_matter(scheme):
    random = np.random.default_rng(2)
    fn = compiled(f"components: {{a: {{range: [0, 1]}}, b: {{range: [0, 1], weight: 0.3}}}}\nadvantage: {scheme}\n")
    columns = {"a": random.random(60), "b": random.random(60)}
    groups, order = random.integers(0, 9, 60), random.permutation(60)
    moved = fn({k: v[order] for k, v in columns.items()}, groups[order]).advantages
    torch.testing.assert_close(moved, fn(columns, groups).advantages[order], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_two_to_the_twenty_rollouts_and_an_offset_do_not_spoil_float32(offset):
    x = (torch.randn(2**20, generator=torch.Generator().manual_seed(0)) + offset).float()
    fn = compiled("components: {a: {range: [-.inf, .inf]}}\nadvantage: zscore(a, over=batch)\n")
    wide = x.double().numpy()
    expected = (wide - wide.mean()) / (wide.std(ddof=1) + 1e-6)
    np.testing.assert_allclose(fn({"a": x}, 16).advantages.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("advantage", "column", "words"),
    [
        ("center(1 / a)", [0.0, 1.0], "`1 / a` is a division by 0 at rollout 0 of group 0"),
        ("center(log(a))", [1.0, 0.0], r"`log\(a\)` is the log of 0 or less at rollout 1 of group 0"),
        ("center(sqrt(a - 1))", [0.5, 1.0], "the root of less than 0 at rollout 0"),
        ("center(exp(1000 * a))", [0.0, 1.0], "the advantage is"),
        ("a + mean(a, where=a > 2)", [0.0, 1.0], "the advantage is missing"),
    ],
)
def test_what_cannot_be_finite_is_an_error_that_names_it(advantage, column, words):
    fn = compiled(f"components: {{a: {{range: [0, 1]}}}}\nadvantage: {advantage}\n")
    with pytest.raises(ValueError, match=words):
        fn({"a": column}, 2)


@pytest.mark.parametrize(
    "advantage",
    ["center(1 / a if a > 0 else 0)", "center(a + mean(log(a), where=a > 0))", "zscore(a / (a - 0.5), where=a != 0.5)"],
)
def test_what_is_not_selected_never_raises(advantage):
    fn = compiled(f"components: {{a: {{range: [0, 1]}}}}\nadvantage: {advantage}\n")
    assert torch.isfinite(fn({"a": [0.0, 0.5, 1.0, 0.25]}, 4).advantages).all()


def test_same_bits_on_repetition_and_from_the_written_module(tmp_path):
    path = tmp_path / "written.py"
    fn = compiled("components: {a: {range: [0, 1]}, b: {range: [0, 1], missing: ignore}}\nadvantage: gdpo\n")
    path.write_text(fn.source)
    loader = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    columns = {"a": torch.rand(1000), "b": torch.where(torch.rand(1000) < 0.1, float("nan"), torch.rand(1000))}
    for groups in (8, torch.randint(0, 99, (1000,))):
        first = fn(columns, groups).advantages
        assert torch.equal(first, fn(columns, groups).advantages)
        assert torch.equal(first, module.advantages(columns, groups).advantages)


@pytest.mark.parametrize("dtype", [*DTYPES, list])
def test_constant_is_compared_as_the_column_holds_it(dtype):
    fn = compiled("components:\n  p: {range: [0, 1]}\n  b: {expr: 1, when: p >= 0.7}\nadvantage: dr_grpo\n")
    column = [0.7, 0.3] if dtype is list else torch.tensor([0.7, 0.3], dtype=dtype)
    assert fn({"p": column}, 2).rewards["b"].tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_values_within_rounding_of_a_declared_one_are_taken_as_it(dtype):
    fn = compiled("components: {p: {values: [0, 0.1, 0.7]}}\nadvantage: center(p)\n")
    wide = {"p": torch.tensor([0.7, 0.1], dtype=dtype)}
    assert torch.equal(fn(wide, 2).rewards["p"], torch.tensor([0.7, 0.1]))
    with pytest.raises(ValueError, match=r"column `p` is 0.2 at rollout 1 of group 0: it should be one of 0, 0.1, 0.7"):
        fn({"p": [0.1, 0.2]}, 2)


@pytest.mark.parametrize(
    ("columns", "groups", "words"),
    [
        ({}, 2, "column `a` is missing"),
        ({"a": [0, 1], "b": [1]}, 2, "column `b` has 1 values for 2 rollouts"),
        ({"a": [0, 1, 1], "b": [1, 1, 1]}, 2, "3 rollouts do not divide into groups of 2"),
        ({"a": [0, 1], "b": [1, 1]}, ["x"], "column `a` has 2 values for 1 group ids"),
        ({"a": [0, 2], "b": [1, 1]}, ["x", "y"], "column `a` is 2 at rollout 1 of group 'y': it should be one of 0, 1"),
        ({"a": [0, None], "b": [1, 1]}, 2, "column `a` is missing at rollout 1 of group 0"),
        ({"a": [0, 1], "b": [1, 1.5]}, 2, "column `b` is 1.5 at rollout 1 of group 0: it should be from 0 to 1"),
        ({"a": [0, 1], "b": [float("inf"), 1]}, 2, "column `b` is inf at rollout 0 of group 0"),
        ({"a": [0, 1], "b": [[0], [1]]}, 2, "it should hold one number for each rollout"),
        ({"a": [0, 1], "b": ["0", "1"]}, 2, "column `b` holds '0': it should hold numbers"),
        ({"a": torch.ones(2, 1), "b": [1, 1]}, 2, r"column `a` has shape \(2, 1\)"),
        ({"a": [0, 1], "b": [1, 1]}, 0, "a group size of 0"),
        ({"a": [0, 1], "b": [1, 1]}, torch.tensor([0.5, 1.0]), "group ids are N whole numbers"),
        ({"a": [0, 1], "b": [1, 1]}, [[1], [2]], "N hashable ids"),
    ],
)
def test_bad_rollouts_are_named(columns, groups, words):
    fn = compiled("components: {a: {values: [0, 1]}, b: {range: [0, 1]}}\nadvantage: grpo\n")
    with pytest.raises(ValueError, match=words):
        fn(columns, groups)


def test_all_bad_columns_at_once():
    fn = compiled("components: {a: {values: [0, 1]}, b: {range: [0, 1]}}\nadvantage: grpo\n")
    with pytest.raises(ValueError) as error:
        fn({"a": [0, 5], "b": [7, 1]}, 2)
    assert "`a` is 5" in str(error.value)
    assert "`b` is 7" in str(error.value)
