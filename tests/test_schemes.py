"""The compiled function against the independent NumPy reference, and what `Result` holds."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rewardspec

WEIGHTS = (1.0, 0.5, -0.3)
VALUES = [-1.0, 0.0, 0.25, 0.5, 1.0, 2.0]  # sums of these differ by far more than rounding, or not at all


def compiled(body):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + body))


def components(count, missing):
    policy = ", missing: ignore" if missing else ""
    rows = [f"  r{i}: {{range: [-10, 10]{policy}, weight: {WEIGHTS[i]}}}" for i in range(count)]
    return "components:\n" + "\n".join(rows) + "\n"


FUNCTIONS: dict = {}


def scheme(name, count, missing):
    key = name, count, missing
    if key not in FUNCTIONS:
        FUNCTIONS[key] = compiled(components(count, missing) + f"advantage: {name}\n")
    return FUNCTIONS[key]


@st.composite
def batches(draw, missing):
    n = draw(st.integers(1, 24))
    groups = draw(st.lists(st.sampled_from(["a", "b", ("c", 1), 4, None]), min_size=n, max_size=n))
    value = st.sampled_from([*VALUES, float("nan")] if missing else VALUES)
    count = draw(st.integers(1, 3))
    columns = {f"r{i}": np.array(draw(st.lists(value, min_size=n, max_size=n))) for i in range(count)}
    return columns, groups


def labels(groups):
    known: dict = {}
    return np.array([known.setdefault(g, len(known)) for g in groups])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", reference.SCHEMES)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_scheme_is_the_reference_on_ragged_interleaved_groups(name, missing, data):
    columns, groups = data.draw(batches(missing))
    weights = {key: WEIGHTS[i] for i, key in enumerate(columns)}
    expected = reference.SCHEMES[name](columns, weights, labels(groups))
    out = scheme(name, len(columns), missing)(columns, groups)
    np.testing.assert_allclose(out.advantages.numpy(), expected, atol=1e-9)
    narrow = {key: torch.tensor(value, dtype=torch.float32) for key, value in columns.items()}
    out = scheme(name, len(columns), missing)(narrow, groups)
    assert out.advantages.dtype == torch.float32
    np.testing.assert_allclose(out.advantages.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("name", reference.SCHEMES)
@settings(deadline=None, max_examples=20)
@given(size=st.integers(1, 6), count=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_dense_and_ragged_paths_are_equal(name, size, count, seed):
    random = np.random.default_rng(seed)
    n = size * count
    columns = {f"r{i}": random.choice(VALUES, n) for i in range(2)}
    order = random.permutation(n)
    fn = scheme(name, 2, False)
    dense = fn(columns, size)
    ragged = fn({key: value[order] for key, value in columns.items()}, np.arange(n)[order] // size)
    np.testing.assert_allclose(ragged.advantages.numpy(), dense.advantages.numpy()[order], atol=1e-12)
    ids = fn(columns, torch.arange(n) // size)  # the same rows, recognised as dense
    assert torch.equal(ids.advantages, dense.advantages)


@pytest.mark.parametrize("name", ["center", "zscore", "loo", "minmax"])
@pytest.mark.parametrize("over", ["group", "batch"])
@pytest.mark.parametrize("by", [False, True])
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_normaliser_with_subset_and_subdivision(name, over, by, data):
    columns, groups = data.draw(batches(missing=True))
    n = len(groups)
    where = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    task = np.array(data.draw(st.lists(st.sampled_from(["x", "y"]), min_size=n, max_size=n)))
    key = name, over, by
    if key not in FUNCTIONS:
        FUNCTIONS[key] = compiled(
            "signals: {w: {values: [0, 1]}, task: {values: [x, y]}}\n"
            "components: {r0: {range: [-10, 10], missing: ignore}}\n"
            f"advantage: {name}(r0, over={over}, where=w >= 1{', by=task' if by else ''})\n"
        )
    given_columns = {"r0": columns["r0"], "w": where.astype(float), "task": list(task)}
    if not by:
        del given_columns["task"]
    expected = getattr(reference, name)(columns["r0"], labels(groups), where=where, over=over, by=task if by else None)
    np.testing.assert_allclose(FUNCTIONS[key](given_columns, groups).advantages.numpy(), expected, atol=1e-9)


# Signals and components --------------------------------------------------------------------------


def shaped(text, columns, groups=2, **call):
    return {k: v.tolist() for k, v in compiled(text + "advantage: dr_grpo\n")(columns, groups, **call).rewards.items()}


def test_gate_and_otherwise():
    text = "components:\n  a: {values: [0, 1]}\n  b: {range: [-3, 3], when: a >= 1, otherwise: -3}\n"
    assert shaped(text, {"a": [0, 1], "b": [2.0, 2.0]})["b"] == [-3, 2]


def test_closed_gate_replaces_a_missing_value_and_an_open_one_does_not():
    text = "components:\n  a: {values: [0, 1]}\n  b: {range: [0, 1], when: a >= 1}\n"
    assert shaped(text, {"a": [0, 1], "b": [None, 0.5]})["b"] == [0, 0.5]
    with pytest.raises(ValueError, match=r"`b` is missing at rollout 1 of group 0"):
        shaped(text, {"a": [0, 1], "b": [0.5, None]})


def test_scale_moves_with_progress_as_in_toolrl():
    text = "components:\n  c: {range: [-3, 3], scale: [-2 - progress, 2 + progress]}\n"
    for step, high in ((0, 2.0), (50, 2.5), (100, 3.0), (200, 3.0)):  # METHODS: correctness [-2 - p, 2 + p]
        assert shaped(text, {"c": [-3.0, 3.0]}, step=step, total_steps=100)["c"] == [-high, high]


def test_schedule_without_total_fails_before_anything_is_computed():
    with pytest.raises(ValueError, match="total_steps"):
        shaped("components:\n  c: {values: [0, 1], scale: [0, 1 + progress]}\n", {"c": [0, 1]}, step=3)


def test_stages_are_prs_long_eq_14():
    text = """signals: {judge: {values: [0, 1]}, process: {values: [-1, 0, 1]}, bleu: {range: [0, 1]}}
components:
  reward:
    stages:
      - process
      - {add: judge, when: process >= 1}
      - {add: bleu, when: judge >= 1}
"""
    rows = [(-1, 1, 0.5, -1), (0, 1, 0.5, 0), (1, 0, 0.5, 1), (1, 1, 0.5, 2.5), (1, 1, 1, 3)]  # last: Eq. 14 by hand
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("process", "judge", "bleu"))}
    assert shaped(text, columns, groups=5)["reward"] == [row[3] for row in rows]


def test_missing_zero_and_outside_clip():
    text = "components:\n  a: {range: [0, 1], missing: zero, outside: clip}\n"
    assert shaped(text, {"a": [None, 1.2]})["a"] == [0, 1]


def test_symbols_and_coarse_columns():
    text = """signals: {task: {values: [math, code], level: group}, difficulty: {range: [0, 1], level: batch}}
components:
  a: {expr: difficulty if task == math else 0}
"""
    columns = {"task": ["math", "math", "code", "code"], "difficulty": 0.5}
    assert shaped(text, columns)["a"] == [0.5, 0.5, 0, 0]
    with pytest.raises(ValueError, match="differs within its group at rollout 3 of group 1"):
        shaped(text, {"task": ["math", "math", "code", "math"], "difficulty": 0.5})
    with pytest.raises(ValueError, match="'cod' at rollout 1 of group 0: it can be math, code"):
        shaped(text, {"task": ["math", "cod", "code", "code"], "difficulty": 0.5})


def test_quantile_rank_and_extremes_are_numpys():
    random = np.random.default_rng(0)
    x = random.normal(size=12)
    groups = np.array([0, 1, 1, 0, 2, 1, 0, 0, 1, 1, 2, 0])
    for text, function in {
        "quantile(x, 0.3)": lambda v: np.quantile(v, 0.3),
        "min(x)": np.min,
        "max(x)": np.max,
        "sum(x)": np.sum,
        "var(x, ddof=0)": np.var,
        "count(x, where=x > 0)": lambda v: (v > 0).sum(),
    }.items():
        fn = compiled(f"components: {{x: {{range: [-9, 9]}}}}\nadvantage: x * 0 + {text}\n")
        expected = [function(x[groups == g]) for g in groups]
        np.testing.assert_allclose(fn({"x": x}, groups).advantages.numpy(), expected, atol=1e-12)
    fn = compiled("components: {x: {range: [-9, 9]}}\nadvantage: x * 0 + rank(x)\n")
    assert fn({"x": [3.0, 1.0, 3.0, 2.0]}, 4).advantages.tolist() == [3, 1, 3, 2]


def test_groups_left_out_have_no_advantage_and_no_part_in_the_batch():
    body = "components: {a: {values: [0, 1]}, b: {range: [0, 1]}}\nkeep: mean(a) < 1\nadvantage: gdpo\n"
    columns = {"a": [1, 1, 0, 1, 1, 0], "b": [0.1, 0.9, 0.2, 0.4, 0.5, 0.5]}
    out = compiled(body)(columns, 2)
    assert out.kept.tolist() == [False, True, True]
    assert out.advantages[:2].tolist() == [0, 0]
    alone = compiled(body)({k: v[2:] for k, v in columns.items()}, 2)
    torch.testing.assert_close(out.advantages[2:], alone.advantages)


# The result --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reference.SCHEMES)
def test_shares_add_up_to_the_advantage(name):
    random = np.random.default_rng(1)
    columns = {f"r{i}": random.choice(VALUES, 24) for i in range(3)}
    out = scheme(name, 3, False)(columns, random.integers(0, 5, 24))
    torch.testing.assert_close(sum(out.shares.values()), out.advantages, atol=1e-9, rtol=0)


def test_no_shares_where_the_advantage_is_no_sum():
    out = compiled("components: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: zscore(a * b)\n")(
        {"a": [0, 1], "b": [1, 1]}, 2
    )
    assert out.shares is None


def test_metrics_are_floats_that_say_how_much_signal_there_is():
    fn = compiled("components: {a: {values: [0, 1]}, b: {values: [0, 1], weight: 0.5}}\nadvantage: decoupled\n")
    found = fn({"a": [0, 1, 1, 1], "b": [1, 1, 0, 0]}, 2).metrics()
    assert all(type(value) is float for value in found.values())
    assert found["groups_without_signal"] == found["rollouts_without_signal"] == 0.5
    assert found["advantage_spread"] == pytest.approx(2**0.5 / 2, abs=1e-5)  # one group of +-0.7071, one of 0
    assert (found["reward/a"], found["weight/b"]) == (0.75, 0.5)


def test_every_kind_of_column_and_group_id():
    fn = compiled("components: {a: {values: [0, 1]}}\nadvantage: grpo\n")
    expected = [-0.7071, 0.7071]
    for column in ([0, 1], [False, True], np.array([0, 1]), np.array([0.0, 1.0]), torch.tensor([0, 1]), (0.0, 1.0)):
        for groups in (
            2,
            ["x", "x"],
            [None, None],
            np.array(["p", "p"]),
            np.array([7, 7]),
            torch.tensor([3, 3]),
            [(1, 2), (1, 2)],
        ):
            assert fn({"a": column}, groups).advantages.tolist() == pytest.approx(expected, abs=1e-4)


def test_empty_batch():
    out = compiled("components: {a: {values: [0, 1]}}\nadvantage: gdpo\n")({"a": []}, 4)
    assert out.advantages.shape == (0,)
    assert out.metrics() == {}
