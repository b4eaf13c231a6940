"""`comb` against `math.comb`, and `kth` against sorting."""

import math
from fractions import Fraction as F

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ

import rewardspec
from rewardspec.emit.runtime.statistics import binomial, group_kth
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import walk
from rewardspec.ops.domain import finite, interval
from rewardspec.ops.operators import ELEMENTWISE
from rewardspec.ops.real import Real
from rewardspec.prove.verify import verify

COMB = ELEMENTWISE["comb"]
TWO = """rewardspec: 1
signals:
  n: {range: [0, .inf], missing: ignore}
  k: {range: [0, .inf], missing: ignore}
components:
  a: {range: [0, 1]}
"""


def whole(n, k, dtype=torch.float64):
    return binomial(torch.tensor(n, dtype=dtype), torch.tensor(k, dtype=dtype))


# comb --------------------------------------------------------------------------------------------


def test_every_small_one_is_exact_in_float64():
    pairs = [(n, k) for n in range(60) for k in range(n + 3) if math.comb(n, k) <= 2**40]
    assert whole(*map(list, zip(*pairs, strict=True))).tolist() == [math.comb(n, k) for n, k in pairs]


@settings(max_examples=200 * FUZZ)
@given(n=st.integers(0, 1029), k=st.integers(0, 1029))
def test_large_ones_are_near(n, k):
    assert whole([n], [k]).item() == pytest.approx(float(math.comb(n, k)), rel=1e-9)


@pytest.mark.parametrize(("n", "k"), [(10**6, 2), (10**6, 32), (10**6, 33), (10**6, 10**6 - 40), (10**6, 60)])
def test_of_a_million(n, k):
    exact = math.comb(n, k)
    assert abs(F(whole([n], [k]).item()) / exact - 1) < F(1, 10**8)


def test_float32_is_the_exact_value_rounded():
    pairs = [(n, k) for n in range(132) for k in range(n + 1)]
    found = whole(*map(list, zip(*pairs, strict=True)), dtype=torch.float32)
    assert found.dtype is torch.float32 and torch.isfinite(found).all()
    expected = np.array([float(math.comb(n, k)) for n, k in pairs]).astype(np.float32)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1.2e-7)  # one unit in the last place
    small = expected <= 2**40
    np.testing.assert_array_equal(found.numpy()[small], expected[small])


def test_the_largest_that_float_types_hold():
    assert torch.isinf(whole([132.0], [66.0], torch.float32)).all()
    assert torch.isfinite(whole([1029.0], [514.0])).all() and torch.isinf(whole([1030.0], [515.0])).all()


def test_numbers_empty_batches_and_what_is_missing():
    nan = float("nan")
    np.testing.assert_array_equal(whole([nan, 3, nan, 80, 2], [1, nan, nan, 40, 5])[[0, 1, 2, 4]], [nan, nan, nan, 0])
    assert binomial(torch.zeros(0), 2).shape == (0,)
    assert binomial(4.0, torch.tensor([0.0, 2.0, 5.0])).tolist() == [1, 6, 0]
    assert binomial(torch.tensor([[4.0], [5.0]]), torch.tensor([1.0, 2.0])).tolist() == [[4, 6], [5, 10]]


@pytest.mark.parametrize(("n", "k"), [(2.5, 1), (-1, 1), (3, 0.5), (3, -1)])
def test_other_than_whole_numbers_from_0_are_errors(n, k):
    with pytest.raises(ValueError, match="whole"):
        COMB.exact(F(n), F(k))
    text = TWO.replace("[0, .inf]", "[-9, .inf]") + "advantage: a + coalesce(comb(n, k), 0)\n"
    fn = rewardspec.compile(rewardspec.loads(text))
    with pytest.raises(Exception, match="whole numbers from 0"):
        fn({"n": [4.0, n], "k": [2.0, k], "a": [0.0, 1.0]}, ["p", "p"])
    gone = fn({"n": [4.0, n], "k": [2.0, float("nan")], "a": [0.0, 1.0]}, ["p", "p"])
    assert gone.advantages.tolist() == [6, 1]  # missing in, missing out
    guarded = text.replace("comb(n, k), 0)", "comb(n, k), 0) if a < 1 else 8")
    out = rewardspec.compile(rewardspec.loads(guarded))({"n": [4.0, n], "k": [2.0, k], "a": [0.0, 1.0]}, ["p", "p"])
    assert out.advantages.tolist() == [6, 8]


@settings(max_examples=100 * FUZZ)
@given(n=st.integers(0, 300), k=st.integers(0, 300))
def test_exact_arithmetic(n, k):
    assert COMB.exact(F(n), F(k)) == math.comb(n, k)
    assert COMB.exact(float(n), float(k)) == float(math.comb(n, k))


def test_exact_arithmetic_is_bounded():
    from rewardspec.ops.elementwise import elementwise_exact

    large = elementwise_exact(COMB, (F(10**9), F(5 * 10**8)))
    assert isinstance(large, Real) and large > 10**300
    below = elementwise_exact(COMB, (F(10**9 - 1), F(5 * 10**8 - 1)))
    assert below < large and float(below / large) == pytest.approx(0.5)
    assert elementwise_exact(COMB, (F(10**9), F(10**9 - 2))) == 10**9 * (10**9 - 1) // 2


@settings(max_examples=200 * FUZZ)
@given(n=st.tuples(st.integers(-2, 9), st.integers(0, 5)), k=st.tuples(st.integers(-2, 9), st.integers(0, 5)))
def test_the_domain_holds_every_value(n, k):
    found = COMB.domain(interval(F(n[0]), F(n[0] + n[1])), interval(F(k[0]), F(k[0] + k[1])))
    for size in range(max(n[0], 0), n[0] + n[1] + 1):
        for taken in range(max(k[0], 0), k[0] + k[1] + 1):
            assert F(math.comb(size, taken)) in found
    assert COMB.domain(finite([F(5)]), finite([F(2)])).constant == 10


PASS = """rewardspec: 1
components:
  correct: {values: [0, 1]}
define:
  c: sum(correct)
  p: 1 - comb(group_size - c, 2) / comb(group_size, 2) if group_size >= 2 else c
advantage: correct * p
guarantees:
  bounded: min(advantage) >= 0 and max(advantage) <= 1
  more: max(advantage) <= 0.5
"""


@pytest.mark.parametrize("groups", [8, [0, 0, 1, 1, 1, 0, 1, 1]])
def test_pass_at_k(groups):
    correct = [1.0, 0, 0, 1, 0, 0, 1, 0]
    ids = [0] * 8 if groups == 8 else groups
    out = rewardspec.compile(rewardspec.loads(PASS))({"correct": correct}, groups)
    for i, c in enumerate(correct):
        own = [correct[j] for j in range(8) if ids[j] == ids[i]]
        n, right = len(own), int(sum(own))
        expected = c * (1 - math.comb(n - right, 2) / math.comb(n, 2))
        assert out.advantages[i].item() == pytest.approx(expected, abs=1e-7)


def test_verify_decides_on_comb():
    assert [v.status for v in verify(rewardspec.loads(PASS), [2, 3, 4])] == ["proved", "refuted"]


# kth ---------------------------------------------------------------------------------------------


@settings(max_examples=100 * FUZZ)
@given(data=st.data(), k=st.integers(1, 6), size=st.integers(0, 6), count=st.integers(0, 4))
def test_the_kernel_is_a_sort(data, k, size, count):
    values = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=size, max_size=size)
    x = torch.tensor(data.draw(st.lists(values, min_size=count, max_size=count))).view(count, size)
    mask = torch.rand(count, size, generator=torch.Generator().manual_seed(k)) < 0.6
    for chosen in (None, mask):
        taken = torch.ones_like(mask) if chosen is None else mask
        rows = [sorted(row[use].tolist(), reverse=True) for row, use in zip(x, taken, strict=True)]
        expected = [[row[k - 1] if len(row) >= k else math.nan] for row in rows]
        np.testing.assert_array_equal(group_kth(x, chosen, k=k), np.array(expected).reshape(count, 1))


def test_in_exact_arithmetic_it_is_missing_where_there_are_fewer():
    text = "rewardspec: 1\ncomponents:\n  a: {values: [0, 1, 2], missing: ignore}\n  b: kth(a, 2)\nadvantage: b\n"
    node = rewardspec.loads(text).program.components[1].shaped
    columns = [n for n in walk([node]) if n.op == "column"]
    one = lambda *values: GroupEvaluator(node, columns, {})([(None if v is None else F(v),) for v in values], {})  # noqa: E731
    assert one(0, 2, 1) == [1, 1, 1]
    assert one(2, 2) == [2, 2]
    assert one(2, None) == [None, None] and one(2) == [None]


def test_the_largest_is_max():
    largest = rewardspec.loads("rewardspec: 1\ncomponents:\n  a: {range: [0, 1]}\nadvantage: a - kth(a, 1)\n")
    code = rewardspec.compile(largest).source.partition("\nimport")[2]  # below the heading, which has the expression
    assert "group_max" in code and "kth" not in code


def test_a_selected_rollout_alone_has_no_second():
    """Unlike of the other reductions, that this rollout is in the subset does not make a value."""
    text = """rewardspec: 1
components:
  a: {range: [0, 1]}
advantage: coalesce(kth(a, 2, where=a > 0), -1) if a > 0 else 0
"""
    out = rewardspec.compile(rewardspec.loads(text))({"a": [0.5, 0.0, 0.5, 0.25]}, 2)
    assert out.advantages.tolist() == [-1, 0, 0.25, 0.25]
