"""Compiled specs against the NumPy reference on ragged groups, and section by section against hand calculation."""

import math
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FUZZ
from reference import formulas as ref

import rewardspec

NAN = math.nan
TYPES = {torch.float64: (1e-9, ref.ULP), torch.float32: (1e-4, float(np.finfo(np.float32).eps))}


@cache
def compiled(text):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + text))


def advantages(text, columns, groups, **given):
    return compiled(text)(columns, groups, **given).advantages.double().numpy()


def close(actual, expected, atol=1e-6):
    actual = actual.double().numpy() if isinstance(actual, torch.Tensor) else actual
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol * max(1, np.nanmax(np.abs(expected), initial=0)))


# Random batches: ragged, interleaved, with missing values

VALUES = [-3.0, -1.7, 0.0, 0.0, 0.1, 0.5, 0.6, 0.7, 1.0, 1.0, 4.0]
ID_KINDS = {
    "ints": lambda labels: [7 - 3 * p for p in labels],
    "strings": lambda labels: [f"prompt {p}" for p in labels],
    "tuples": lambda labels: [("set", p) for p in labels],
    "mixed": lambda labels: [[None, "x", ("t", 2), 2**80, frozenset({1}), 0.5][p] for p in labels],
    "numpy": lambda labels: np.array(labels, dtype=np.int32) * 1000,
    "numpy names": lambda labels: np.array([f"p{p}" for p in labels]),
    "tensor": lambda labels: torch.tensor(labels) - 2**40,
}


@st.composite
def batches(draw, names="abc", missing=0.2):
    """Columns of float64 [N] by name (and `mask`, `task`), labels [N], and the ids to pass for them."""
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    if draw(st.booleans()):
        labels = rng.permutation(labels)
    n = len(labels)
    smooth = draw(st.booleans())
    columns = {name: rng.normal(size=n).clip(-3, 4) if smooth else rng.choice(VALUES, n) for name in names}
    if draw(st.booleans()):
        columns = {name: np.where(rng.random(n) < missing, NAN, x) for name, x in columns.items()}
    columns["mask"] = rng.integers(0, 2, n).astype(float)
    columns["task"] = rng.choice(["code", "math", "tool"], n).tolist()
    labels = labels.tolist()
    return columns, labels, ID_KINDS[draw(st.sampled_from(sorted(ID_KINDS)))](labels)


def as_type(columns, dtype):
    """The columns as tensors of a type, and what they hold then in float64."""
    tensors = {k: x if isinstance(x, list) else torch.tensor(x).to(dtype) for k, x in columns.items()}
    return tensors, {k: x if isinstance(x, list) else x.double().numpy() for k, x in tensors.items()}


THREE = """
components:
  a: {range: [-3, 4], missing: ignore}
  b: {range: [-3, 4], missing: ignore, weight: 0.3}
  c: {range: [-3, 4], missing: ignore, weight: -2}
"""
WEIGHTS = {"a": 1, "b": 0.3, "c": -2}
EVERY_SCHEME = pytest.mark.parametrize("scheme", ref.SCHEMES)
EVERY_TYPE = pytest.mark.parametrize("dtype", TYPES, ids=["float64", "float32"])


@pytest.mark.slow
@EVERY_TYPE
@EVERY_SCHEME
@settings(max_examples=60 * FUZZ)
@given(batch=batches())
def test_schemes_agree_with_the_reference(scheme, dtype, batch):
    columns, labels, ids = batch
    tolerance, ulp = TYPES[dtype]
    tensors, columns = as_type({name: columns[name] for name in "abc"}, dtype)
    out = compiled(f"{THREE}advantage: {scheme}\n")(tensors, ids)
    assert out.advantages.dtype is dtype
    close(out.advantages, ref.SCHEMES[scheme](columns, WEIGHTS, labels, ulp=ulp), tolerance)


@pytest.mark.slow
@EVERY_SCHEME
@settings(max_examples=60 * FUZZ)
@given(batch=batches())
def test_shares_sum_to_the_advantage(scheme, batch):
    columns, labels, ids = batch
    out = compiled(f"{THREE}advantage: {scheme}\n")({name: columns[name] for name in "abc"}, ids)
    assert list(out.shares) == ["a", "b", "c"]
    close(sum(out.shares.values()), out.advantages.numpy(), 1e-9)
    for name, share in out.shares.items():
        if scheme in ("decoupled", "gdpo"):
            assert not share[torch.isnan(out.rewards[name])].any()
    if scheme == "decoupled":
        expected = ref.shares({name: columns[name] for name in "abc"}, WEIGHTS, labels)
        close(torch.stack(list(out.shares.values())), expected, 1e-9)


SIGNALS = "signals:\n  mask: {values: [0, 1]}\n  task: {values: [math, code, tool]}\n"
ONE = SIGNALS + "components:\n  a: {range: [-3, 4], missing: ignore}\n"
OPTIONS = st.fixed_dictionaries(
    {"over": st.sampled_from(["group", "batch"])},
    optional={"where": st.just("mask >= 1"), "by": st.just("task")},
)


def written(options):
    return ", ".join(f"{key}={value}" for key, value in options.items())


def for_reference(options, columns):
    own = {"over": options["over"]}
    if "where" in options:
        own["where"] = columns["mask"] == 1
    if "by" in options:
        own["by"] = columns["task"]
    return own


@pytest.mark.slow
@EVERY_TYPE
@pytest.mark.parametrize("normaliser", ["center", "zscore", "loo", "minmax"])
@settings(max_examples=60 * FUZZ)
@given(batch=batches("a"), options=OPTIONS)
def test_normalisers_agree_with_the_reference(normaliser, dtype, batch, options):
    columns, labels, ids = batch
    tolerance, ulp = TYPES[dtype]
    tensors, columns = as_type(columns, dtype)
    actual = advantages(f"{ONE}advantage: {normaliser}(a, {written(options)})\n", tensors, ids)
    expected = getattr(ref, normaliser)(columns["a"], labels, ulp=ulp, **for_reference(options, columns))
    close(actual, expected, tolerance)


def spread_over(statistic, x, labels, options, empty):
    """[N]: a NumPy statistic of the counted values of each cell, `empty` where there are none."""
    options = dict(options)
    out = np.full(len(x), float(empty))
    for cell, used in ref.counted_cells(x, labels, options.get("where"), options["over"], options.get("by")):
        if len(used):
            out[cell] = statistic(x[used])
    return out


STATISTICS = {  # an expression of `a`, the NumPy function, what it is of no values
    "mean(a{})": (np.mean, -9),
    "sum(a{})": (np.sum, 0),
    "min(a{})": (np.min, -9),
    "max(a{})": (np.max, -9),
    "count(a{})": (len, 0),
    "any(a > 0{})": (lambda v: (v > 0).any(), 0),
    "all(a > 0{})": (lambda v: (v > 0).all(), 1),
    "std(a{})": (lambda v: v.std(ddof=1) if len(v) > 1 else 0, 0),
    "var(a{}, ddof=0)": (lambda v: v.var() if len(v) > 1 else 0, 0),
    "quantile(a, 0.5{})": (np.median, -9),
    "quantile(a, 0.3{})": (lambda v: np.quantile(v, 0.3), -9),
    "quantile(a, 1{})": (np.max, -9),
    "kth(a, 1{})": (np.max, -9),
    "kth(a, 2{})": (lambda v: np.partition(v, -2)[-2] if len(v) >= 2 else -9, -9),
    "kth(a, 4{})": (lambda v: np.sort(v)[-4] if len(v) >= 4 else -9, -9),
}


@pytest.mark.slow
@pytest.mark.parametrize("expression", STATISTICS)
@settings(max_examples=30 * FUZZ)
@given(batch=batches("a"), options=OPTIONS)
def test_reductions_agree_with_numpy(expression, batch, options):
    columns, labels, ids = batch
    statistic, empty = STATISTICS[expression]
    text = f"{ONE}advantage: a - coalesce({expression.format(', ' + written(options))}, -9)\n"
    expected = columns["a"] - spread_over(statistic, columns["a"], labels, for_reference(options, columns), empty)
    close(advantages(text, columns, ids), np.nan_to_num(expected, nan=0.0), 1e-9)


@pytest.mark.slow
@settings(max_examples=60 * FUZZ)
@given(batch=batches("a"), options=OPTIONS)
def test_rank_gives_one_to_the_least_and_ties_share_the_lower(batch, options):
    columns, labels, ids = batch
    expected = np.zeros(len(labels))
    own = for_reference(options, columns)
    for _, used in ref.counted_cells(columns["a"], labels, own.get("where"), own["over"], own.get("by")):
        values = columns["a"][used]
        expected[used] = [1 + (values < v).sum() for v in values]
    close(advantages(f"{ONE}advantage: coalesce(rank(a, {written(options)}), 0)\n", columns, ids), expected)


@pytest.mark.slow
@EVERY_SCHEME
@settings(max_examples=30 * FUZZ)
@given(groups=st.integers(1, 5), size=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_dense_groups_are_as_the_same_groups_interleaved(scheme, groups, size, seed):
    rng = np.random.default_rng(seed)
    columns = {name: rng.choice([*VALUES, NAN], groups * size) for name in "abc"}
    fn, order = compiled(f"{THREE}advantage: {scheme}\n"), rng.permutation(groups * size)
    dense = fn(columns, groups=size)
    ragged = fn({k: x[order] for k, x in columns.items()}, groups=(order // size).tolist())
    close(ragged.advantages, dense.advantages.numpy()[order], 1e-9)
    for name, share in dense.shares.items():
        close(ragged.shares[name], share.numpy()[order], 1e-9)


@pytest.mark.slow
@EVERY_SCHEME
@settings(max_examples=40 * FUZZ)
@given(batch=batches())
def test_groups_outside_keep_have_no_part(scheme, batch):
    columns, labels, ids = batch
    columns = {name: columns[name] for name in "abc"}
    text = f"{THREE}keep: max(coalesce(a, 0)) > 0.55\nadvantage: {scheme}\n"
    out = compiled(text)(columns, ids)
    kept = {
        p: max(np.nan_to_num(x) for x, q in zip(columns["a"], labels, strict=True) if q == p) > 0.55 for p in labels
    }
    assert out.kept.tolist() == [kept[p] for p in dict.fromkeys(labels)]
    close(out.advantages, ref.SCHEMES[scheme](ref.keep(columns, labels, kept), WEIGHTS, labels), 1e-9)


# Sections of a component. What is read from `rewards` is the shaped value


def shaped(component, columns, signals="", groups=None, **given):
    text = f"{signals and f'signals:{chr(10)}{signals}'}components:\n  x: {component}\nadvantage: dr_grpo\n"
    n = max(len(x) for x in columns.values())
    return compiled(text)(columns, groups or n, **given).rewards["x"].tolist()


OK = "  ok: {values: [0, 1]}\n"


def test_closed_gate_gives_otherwise_or_zero():
    columns = {"x": [0.25, 0.5, 1.0], "ok": [1, 0, 1]}
    assert shaped("{range: [0, 1], when: ok >= 1}", columns, OK) == [0.25, 0, 1]
    assert shaped("{range: [0, 1], when: ok >= 1, otherwise: -0.5}", columns, OK) == [0.25, -0.5, 1]
    assert shaped("{range: [0, 1], when: ok >= 1, otherwise: ok - 2}", columns, OK) == [0.25, -2, 1]
    np.testing.assert_equal(shaped("{range: [0, 1], when: ok >= 1, otherwise: ignore}", columns, OK), [0.25, NAN, 1])


def test_closed_gate_replaces_a_missing_value_and_an_open_one_does_not():
    component = "{range: [0, 1], when: ok >= 1}"
    assert shaped(component, {"x": [0.25, None, NAN], "ok": [1, 0, 0]}, OK) == [0.25, 0, 0]
    with pytest.raises(ValueError, match=r"`x` is missing at rollout 2 of group 0"):
        shaped(component, {"x": [0.25, None, NAN], "ok": [1, 0, 1]}, OK)


def test_missing_condition_does_not_hold_nor_does_its_not():
    maybe = "  ok: {values: [0, 1], missing: ignore}\n"
    columns = {"x": [1.0, 1.0, 1.0], "ok": [1, 0, None]}
    assert shaped("{range: [0, 1], when: ok >= 1}", columns, maybe) == [1, 0, 0]
    assert shaped("{range: [0, 1], when: not ok >= 1}", columns, maybe) == [0, 1, 0]
    assert shaped("{range: [0, 1], when: ok != 1}", columns, maybe) == [0, 1, 0]


def test_order_of_sections_is_missing_outside_scale_when_weight():
    component = (
        "{range: [0, 2], missing: zero, outside: clip, scale: [-1, 1], when: ok >= 1, otherwise: -5, weight: 10}"
    )
    assert shaped(component, {"x": [None, 7.0, 1.5, 1.0], "ok": [1, 1, 1, 0]}, OK) == [-1, 1, 0.5, -5]


def test_scale_moves_with_progress():
    # ToolRL: [-3, 3] onto [-2 - p, 2 + p]; at p = 1/2 a third of the way is -2.5 + 5/3.
    component = "{range: [-3, 3], scale: [-2 - progress, 2 + progress]}"
    for step, expected in [(0, [-2, -2 / 3, 2]), (5, [-2.5, -2.5 / 3, 2.5]), (10, [-3, -1, 3]), (99, [-3, -1, 3])]:
        close(shaped(component, {"x": [-3.0, -1.0, 3.0]}, step=step, total_steps=10), expected)


def test_stages_add_up_while_all_gates_before_hold():
    # PRS Eq. 13-15: the third stage needs the second's gate too.
    signals = "  f: {values: [0, 1]}\n  s: {range: [0, 1]}\n"
    stages = "{stages: [{add: f}, {add: s, when: f >= 1}, {add: 2 * s, when: s > 0.5}]%s}"
    columns = {"f": [0, 1, 1, 0], "s": [0.75, 0.75, 0.25, 0.25]}
    close(shaped(stages % "", columns, signals), [0, 1 + 0.75 + 1.5, 1.25, 0])
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    squashed = [0, 1 + sigmoid(0.75) + sigmoid(1.5), 1 + sigmoid(0.25), 0]
    close(shaped(stages % ", squash: sigmoid", columns, signals), squashed)


def test_missing_zero_and_outside_clip():
    assert shaped("{range: [0, 1], missing: zero}", {"x": [None, NAN, 0.5]}) == [0, 0, 0.5]
    assert shaped("{range: [0, 1], outside: clip}", {"x": [1.25, -7.0, 0.5]}) == [1, 0, 0.5]
    assert shaped("{values: [0, 0.5, 1], outside: clip}", {"x": [0.5, 0.1, 3.0]}) == [0.5, 0, 1]


def test_values_within_rounding_of_a_declared_one_are_taken_as_it():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        column = torch.tensor([0.1, 0.7, 0.1], dtype=dtype)
        close(shaped("{values: [0, 0.1, 0.7]}", {"x": column}), [0.1, 0.7, 0.1], 1e-7)


def test_ramp_and_overlong_penalty():
    # DAPO Eq. 13 with limit 8 and buffer 4.
    tokens = {"n": [0.0, 4.0, 5.0, 8.0, 90.0]}
    signal = "  n: {range: [0, .inf]}\n"
    close(shaped("{expr: 'overlong(n, limit=8, buffer=4)'}", tokens, signal), ref.overlong(tokens["n"], 8, 4))
    close(shaped("{expr: 'ramp(n, start=4, end=8)'}", tokens, signal), [0, 0, 0.25, 1, 1])


# Levels and symbols

LEVELS = """
signals:
  hard: {range: [0, 1], level: group}
  price: {range: [0, 10], level: batch}
components:
  a: {values: [0, 1], weight: 1 + hard}
  b: {values: [0, 1], weight: -price}
advantage: dr_grpo
"""


@pytest.mark.parametrize("price", [2, 2.0, [2.0], torch.tensor(2.0), np.float32(2), [2.0] * 5])
def test_weights_of_group_and_batch_level(price):
    # p: a 0 1 (weight 1.5), b 1 1; q: a 1 0 0 (weight 1), b 0 0 1; b has weight -2.
    columns = {"a": [0, 1, 1, 0, 0], "b": [1, 0, 1, 0, 1], "hard": [0.5, 0, 0.5, 0, 0], "price": price}
    out = compiled(LEVELS)(columns, list("pqpqq"))
    r_p, r_q = np.array([-2, -0.5]), np.array([1.0, 0, -2])
    expected = np.empty(5)
    expected[[0, 2]], expected[[1, 3, 4]] = r_p - r_p.mean(), r_q - r_q.mean()
    close(out.advantages, expected)
    assert out.weights["a"].tolist() == [1.5, 1] and out.weights["b"].item() == -2


def test_weights_and_kept_are_in_order_of_first_appearance():
    text = LEVELS + "keep: mean(a) < 1\n"
    columns = {"a": [1, 0, 1, 1, 1], "b": [1, 0, 1, 0, 1], "hard": [0.5, 0.25, 0.5, 0, 0.5], "price": 1}
    out = compiled(text)(columns, ["three", "one", "three", "uno", "three"])
    assert out.weights["a"].tolist() == [1.5, 1.25, 1]
    assert out.kept.tolist() == [False, True, False]


def test_batch_reduction_of_a_group_value_counts_each_group_once():
    text = "components:\n  a: {range: [0, 10]}\nadvantage: a - mean(mean(a), over=batch)\n"
    close(advantages(text, {"a": [0.0, 6, 0, 0]}, list("pqpp")), [-3, 3, -3, -3])


def test_symbols_are_compared_by_name_and_subdivide():
    columns = {"a": [0.0, 1, 2, 4], "task": ["math", "code", "math", "code"]}
    close(advantages(f"{ONE}advantage: center(a, by=task)\n", columns, 4), [-1, -1.5, 1, 1.5])
    close(advantages(f"{ONE}advantage: a * (task == math)\n", columns, 4), [0, 0, 2, 0])
    close(advantages(f"{ONE}advantage: a if task != math else -1\n", columns, 2), [-1, 1, -1, 4])


def test_group_size_and_batch_size():
    close(
        advantages(f"{ONE}advantage: a / group_size + batch_size\n", {"a": [3.0, 4, 3, 3]}, list("pqpp")), [5, 8, 5, 5]
    )


# What comes back beside the advantage


def test_ignored_process_scores_are_normalised_among_right_answers():
    # PAPO Eq. 4: outcome 1 1 0 1 -> z of (1 1 0 1) is 0.5 0.5 -1.5 0.5; process among the right 0, 0.5, 1 -> -1 0 1.
    text = """
components:
  outcome: {values: [0, 1]}
  process: {range: [0, 1], when: outcome >= 1, otherwise: ignore}
advantage: decoupled
"""
    out = compiled(text)({"outcome": [1, 1, 0, 1], "process": [0, 0.5, NAN, 1]}, 4)
    close(out.advantages, [-0.5, 0.5, -1.5, 1.5], 1e-5)
    close(out.shares["process"], [-1, 0, 0, 1], 1e-5)


def test_equal_weights_cancel_but_each_share_does_not():
    # z(1, 1, 0) = (1, 1, -2) / sqrt(3) = -z(0, 0, 1): GDPO Sec. 2's "non-zero" is of each component's share.
    text = "components:\n  a: {values: [0, 1]}\n  b: {values: [0, 1], weight: %s}\nadvantage: %s\n"
    columns, z = {"a": [1, 1, 0], "b": [0, 0, 1]}, np.array([1, 1, -2]) / math.sqrt(3)
    out = compiled(text % (1, "decoupled"))(columns, 3)
    close(out.advantages, [0, 0, 0])
    close(out.shares["a"], z, 1e-5)
    close(out.shares["b"], -z, 1e-5)
    assert advantages(text % (1, "gdpo"), columns, 3).tolist() == [0, 0, 0]
    close(advantages(text % (0.5, "decoupled"), columns, 3), z / 2, 1e-5)


def test_advantage_that_is_no_sum_of_shares_has_none():
    out = compiled(f"{THREE}advantage: max(decoupled, 0)\n")({name: [0.0, 1.0] for name in "abc"}, 2)
    assert out.shares is None


def test_metrics_by_hand():
    text = (
        "components:\n  a: {values: [0, 1]}\n  b: {range: [0, 4], missing: ignore, weight: 0.5}\nadvantage: dr_grpo\n"
    )
    out = compiled(text)({"a": [0, 1, 1, 1], "b": [2.0, 4.0, None, 1.0]}, 2)
    # R = 1 3 | 1.5 1.5, the missing value at its group's mean; advantage -1 1 | 0 0.
    expected = {
        "rollouts_without_signal": 0.5, "groups_without_signal": 0.5, "advantage_spread": 1, "groups_kept": 1,
        "total": 7 / 4, "total_std": 2**0.5 / 2,
        "reward/a": 0.75, "reward/b": 7 / 3, "weight/a": 1, "weight/b": 0.5, "share/a": 0.25, "share/b": 0.25,
    }  # fmt: skip
    assert out.metrics() == pytest.approx(expected)
    np.testing.assert_equal(out.rewards["b"].tolist(), [2, 4, NAN, 1])
    assert out.total.tolist() == [1, 3, 1.5, 1.5]
    assert {name: w.item() for name, w in out.weights.items()} == {"a": 1, "b": 0.5}


def test_total_by_hand():
    # Of nothing measured there is none; groups of unlike size, interleaved: 1, 3 and 0, 2, -.
    text = "components:\n  a: {range: [0, 9], missing: ignore, weight: 2}\nadvantage: grpo\n"
    out = compiled(text)({"a": [0.5, 0, 1.5, 1, None]}, ["x", "y", "x", "y", "y"])
    np.testing.assert_equal(out.total.tolist(), [1, 0, 3, 2, NAN])
    np.testing.assert_equal(pickle.loads(pickle.dumps(out)).total.tolist(), [1, 0, 3, 2, NAN])
    assert out.metrics()["total"] == 1.5 and out.metrics()["total_std"] == pytest.approx(2**0.5)
    # One of the spec's own; one that reads what a call does not read, so that the prelude's is taken.
    both = "components: {a: {values: [0, 1]}, b: {values: [0, 1]}}\n"
    out = compiled(f"{both}define: {{total: a * b}}\nadvantage: center(total)\n")({"a": [1, 1], "b": [1, 0]}, 2)
    assert out.total.tolist() == [1, 0]
    more = f"signals: {{c: {{values: [0, 1]}}}}\n{both}define: {{total: a * c}}\nadvantage: grpo\n"
    assert compiled(more)({"a": [1, 1], "b": [1, 0]}, 2).total.tolist() == [2, 1]
