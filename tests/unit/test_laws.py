"""The six laws of the language, and what a call refuses."""

import importlib.util
import math
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
SCHEMES = [*ref.SCHEMES, "zscore(total, over=batch)", "minmax(total)", "zscore(decoupled)", "total - mean(total)"]
SUMMED = [s for s in SCHEMES if "decoupled" not in s and s != "gdpo"]  # what is normalised is a sum of rewards
EVERY_SCHEME = pytest.mark.parametrize("scheme", SCHEMES)


@cache
def compiled(text):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + text))


def spec(scheme, names="a", **weights):
    lines = "".join(f"  {name}: {{range: [-.inf, .inf], weight: {weights.get(name, 1)}}}\n" for name in names)
    return f"components:\n{lines}advantage: {scheme}\n"


def advantages(text, columns, groups, **given):
    return compiled(text)(columns, groups, **given).advantages


def column(values, kind):
    return list(values) if kind == "list" else torch.tensor(values, dtype=torch.float64).to(getattr(torch, kind))


# 1. No spread, no advantage

KINDS = pytest.mark.parametrize("kind", ["list", "float16", "bfloat16", "float32", "float64"])


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("value", [0.1, 0.7, 1e6 + 0.1, -1 / 3])
@EVERY_SCHEME
def test_eight_equal_rewards_give_eight_exact_zeros(scheme, value, kind):
    if kind == "float16" and value > 65504:
        return  # it is infinity there, which is refused
    reward = column([value] * 8, kind)
    for groups in (8, list("pqqpqpqq"), 1, 2):
        assert advantages(spec(scheme), {"a": reward}, groups).tolist() == [0] * 8
    two = spec(scheme, "ab", b=0.3)
    assert advantages(two, {"a": reward, "b": column([0.7] * 8, kind)}, 8).tolist() == [0] * 8


@KINDS
@pytest.mark.parametrize("scheme", ref.SCHEMES)
def test_group_without_spread_stays_exactly_zero_beside_others(scheme, kind):
    columns = {"a": column([0.1, 0.4, 0.1, -0.9, 0.1, 0.7, 5], kind), "b": column([0.7, 2, 0.7, 1, 0.7, 0, 3], kind)}
    out = advantages(spec(scheme, "ab", b=0.3), columns, list("pqpqpqz")).tolist()
    assert [out[i] for i in (0, 2, 4, 6)] == [0] * 4
    assert all(out[i] for i in (1, 3, 5))


def two_that_sum_to(total, kind):
    """Two components whose sums are 0.7 or 0.8, up to rounding."""
    first = [0.1, total, total - 0.1, 0.3]
    return {"a": column(first, kind), "b": column([round(total - x, 1) for x in first], kind)}


@KINDS
@pytest.mark.parametrize("total", [0.7, 0.8])
@pytest.mark.parametrize("scheme", SUMMED)
def test_sums_that_differ_by_rounding_have_no_spread(scheme, total, kind):
    columns = two_that_sum_to(total, kind)
    assert advantages(spec(scheme, "ab"), columns, 4).tolist() == [0] * 4
    assert advantages(spec(scheme, "ab"), columns, [0, 1, 1, 0]).tolist() == [0] * 4


def test_those_sums_do_differ_in_float32_and_float64():
    for total, kind in [(0.7, "float32"), (0.8, "float64")]:
        columns = two_that_sum_to(total, kind)
        assert len((columns["a"] + columns["b"]).unique()) > 1


@pytest.mark.parametrize("kind", ["list", "float32", "float64"])
@pytest.mark.parametrize("scheme", SUMMED)
def test_weighted_sums_that_differ_by_rounding_have_no_spread(scheme, kind):
    # 0.1 a + 0.7 b + c is 0.7 for all of them, up to rounding.
    columns = {"a": column([7, 0, 1, 0], kind), "b": column([0, 1, 0, 0], kind), "c": column([0, 0, 0.6, 0.7], kind)}
    assert advantages(spec(scheme, "abc", a=0.1, b=0.7), columns, 4).tolist() == [0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["list", "float32", "float64"])
@pytest.mark.parametrize(
    "expression",
    [
        "zscore(a + b)", "zscore(b + 3 * a - 2 * a)", "zscore((a + b) / 3)", "zscore(2 * total - 1)",
        "zscore(max(a + b, 0))", "zscore(clip(total, 0, 1))", "zscore(total if total > 0 else 0)",
        "zscore(total - mean(total, over=batch))", "zscore(sqrt(total))", "zscore(-total)",
        "zscore(a + b, where=a >= 0)", "zscore(total, over=batch)", "loo(a + b)", "minmax(a + b)", "center(a + b)",
        "(a + b - mean(a + b)) / (std(a + b) + 0.001)", "(total - mean(total)) * (std(total) > 0)",
    ],
)  # fmt: skip
def test_rounding_is_no_spread_in_expressions(expression, kind):
    for total in (0.7, 0.8):
        assert advantages(spec(expression, "ab"), two_that_sum_to(total, kind), 4).tolist() == [0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["list", "float32", "float64"])
@pytest.mark.parametrize(
    "expression",
    [
        "center(a + b)", "loo(a + b)", "zscore(a + b)", "center(a + b, where=c > 0)", "loo(a + b, where=c > 0)",
        "center(a + b, by=c)", "center(a + b, over=batch)", "center(a + b, over=batch, where=c > 0, by=c)",
        "(a + b) - mean(a + b, where=c > 0)",
    ],
)  # fmt: skip
def test_rounding_is_no_spread_among_some_of_the_values(expression, kind):
    # a + b is 0.7 or 0.8 up to rounding, where b was measured; c says which rollouts a subset has
    for total in (0.7, 0.8):
        columns = {name: column([*x, 0.25, *x], kind) for name, x in two_that_sum_to(total, "list").items()}
        columns["b"][4] = NAN
        columns["c"] = column([1, 1, 1, 1, 1, 0, 0, 0, 0], kind)
        text = spec(f"coalesce({expression}, 0)", "abc").replace("b: {", "b: {missing: ignore, ")
        assert advantages(text, columns, 9).tolist() == [0] * 9
        columns["c"][1] = 0
        assert advantages(text, columns, [0, 1, 0, 1, 0, 1, 0, 1, 0]).tolist() == [0] * 9


@pytest.mark.parametrize("kind", ["list", "float32", "float64"])
@pytest.mark.parametrize("scheme", ["gdpo", "zscore(decoupled)", "zscore(decoupled, over=batch)"])
def test_zscores_that_cancel_have_no_spread(scheme, kind):
    # z(1, 1, 0) = -z(0, 0, 1).
    columns = {"a": column([1, 1, 0] * 2, kind), "b": column([0, 0, 1] * 2, kind)}
    assert advantages(spec(scheme, "ab"), columns, 3).tolist() == [0] * 6
    columns = {"a": column([0.1, 0.2, 0.4], kind), "b": column([-0.1, -0.2, -0.4], kind)}
    assert advantages(spec(scheme, "ab"), columns, 3).tolist() == [0] * 3


@pytest.mark.parametrize("kind", ["list", "float32", "float64"])
def test_spread_beyond_rounding_counts(kind):
    ulp = 2.0**-52 if kind == "float64" else 2.0**-23
    close = column([1, 1, 1 + 64 * ulp], kind)
    text = spec("zscore(a)") + "numerics: {eps: 0}\n"
    np.testing.assert_allclose(advantages(text, {"a": close}, 3), np.array([-1, -1, 2]) / 3**0.5, rtol=1e-5)


# 2. Fewer than two values have no spread


@pytest.mark.slow
@pytest.mark.parametrize("ddof", [0, 1])
@EVERY_SCHEME
def test_groups_of_one_have_advantage_zero(scheme, ddof):
    text = spec(scheme, "ab") + f"numerics: {{ddof: {ddof}}}\n"
    assert advantages(text, {"a": [3.0], "b": [0.7]}, 1).tolist() == [0]
    if "over=batch" not in scheme:
        assert advantages(text, {"a": [3.0, 1.0, 5.0], "b": [0.7, 0, 1]}, ["p", "q", "r"]).tolist() == [0] * 3


@pytest.mark.parametrize("ddof", [0, 1])
def test_subset_of_one_has_no_spread(ddof):
    text = "signals:\n  m: {values: [0, 1]}\n" + spec("zscore(a, where=m >= 1)") + f"numerics: {{ddof: {ddof}}}\n"
    assert advantages(text, {"a": [3.0, 1, 5, 2, 0, 0], "m": [1, 0, 0, 0, 0, 0]}, 3).tolist() == [0] * 6


# 3. Order does not matter


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float64"])
@EVERY_SCHEME
@settings(max_examples=40 * FUZZ)
@given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5), seed=st.integers(0, 2**32))
def test_permuting_rollouts_permutes_advantages(scheme, kind, sizes, seed):
    rng = np.random.default_rng(seed)
    groups, n = np.repeat(np.arange(len(sizes)), sizes), sum(sizes)
    columns = {"a": rng.choice([0.0, 0.1, 0.5, 0.7, 1.0], n), "b": rng.normal(size=n).round(1)}
    tensors = {name: column(x, kind) for name, x in columns.items()}
    order = rng.permutation(n)
    before = advantages(spec(scheme, "ab", b=0.3), tensors, groups)
    after = advantages(spec(scheme, "ab", b=0.3), {k: x[order] for k, x in tensors.items()}, groups[order])
    np.testing.assert_allclose(after, before[order], rtol=0, atol=2e-5 if kind == "float32" else 1e-10)


QUOTIENTS = [  # the value, and which rollouts are divided by the deviation of which
    ("x / std(x) if std(x) > 0 else 0", "g", False),
    ("x / (std(x) + eps) if std(x) > 0 else 0", "g", False),
    ("x / std(x, over=batch) if std(x, over=batch) > 0 else 0", "", False),
    ("x / std(x, where=y) if y and std(x, where=y) > 0 else 0", "g", True),
    ("x / std(x, by=y) if std(x, by=y) > 0 else 0", "gy", False),
]


@pytest.mark.slow
@pytest.mark.parametrize("of", ["rollouts", "items"])
@pytest.mark.parametrize(("expression", "by", "inside"), QUOTIENTS)
def test_what_is_divided_by_its_deviation_keeps_its_mean(expression, by, inside, of):
    """`x / std(x)` is no z-score: the mean of 1 and 3 is 2, and their deviation is taken from it."""
    rng = np.random.default_rng(3)
    g, x, y = np.repeat([0, 1], 8), rng.integers(0, 9, 16).astype(float), rng.integers(0, 2, 16)
    part = [tuple({"g": g, "y": y}[name][i] for name in by) for i in range(16)]
    expected = np.zeros(16)
    for i in range(16):
        others = [x[j] for j in range(16) if part[j] == part[i] and (y[j] or not inside)]
        expected[i] = x[i] / np.std(others, ddof=1) if y[i] or not inside else 0
    text, groups, handed = "components: {x: {range: [0, 9]}}\n", 8, {"x": x, "y": y}
    if of == "items":
        text, groups = "lists: {turn: {}}\ncomponents: {x: {range: [0, 9], level: turn}}\n", 2
        handed = {name: np.split(v, [3, 8, 15]) for name, v in handed.items()}
    level = ", level: turn" if of == "items" else ""
    text += f"signals: {{y: {{values: [0, 1]{level}}}}}\nadvantage: {expression}\nnumerics: {{eps: 0}}\n"
    np.testing.assert_allclose(advantages(text, handed, groups), expected, rtol=1e-12)


# 4. Large offsets, many rollouts


@pytest.mark.parametrize("scheme", ref.SCHEMES)
@pytest.mark.parametrize(("kind", "offset"), [("float64", 1e6), ("float64", 1e8), ("float32", 1e6)])
def test_large_offset_changes_nothing(scheme, kind, offset):
    rng = np.random.default_rng(0)
    small, other = rng.integers(0, 5, 64).astype(float), rng.integers(0, 3, 64).astype(float)
    text = spec(scheme, "ab", b=2)
    expected = ref.SCHEMES[scheme]({"a": small, "b": other}, {"a": 1, "b": 2}, (np.arange(64) // 4).tolist())
    columns = {"a": column(small + offset, kind), "b": column(other, kind)}
    np.testing.assert_allclose(advantages(text, columns, 4), expected, rtol=0, atol=1e-5)


MILLION = 2**20


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 1e3])
def test_a_million_rollouts_in_one_batch(offset):
    x = (offset + np.random.default_rng(0).random(MILLION)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean()) / (wide.std(ddof=1) + 1e-6)
    for scheme, groups in [("zscore(a)", MILLION), ("zscore(a, over=batch)", 16)]:
        np.testing.assert_allclose(advantages(spec(scheme), {"a": torch.tensor(x)}, groups), expected, atol=2e-6)


@pytest.mark.slow
def test_gdpo_of_a_million_rollouts():
    x = np.random.default_rng(0).normal(5, 1, (3, MILLION // 16, 16)).astype(np.float32)
    wide = x.astype(np.float64)
    z = (wide - wide.mean(2, keepdims=True)) / (wide.std(2, ddof=1, keepdims=True) + 1e-6)
    a = (z[0] + 0.5 * z[1] - 2 * z[2]).ravel()
    columns = {name: torch.tensor(x[k].ravel()) for k, name in enumerate("abc")}
    out = advantages(spec("gdpo", "abc", b=0.5, c=-2), columns, 16)
    np.testing.assert_allclose(out, (a - a.mean()) / (a.std(ddof=1) + 1e-6), rtol=0, atol=3e-6)


@pytest.mark.parametrize("kind", ["int", "bool", "list", "float16", "bfloat16", "float32"])
def test_narrow_input_is_computed_in_float32(kind):
    given = {"int": torch.tensor([0, 1, 1]), "bool": torch.tensor([False, True, True]), "list": [0, 1, True]}
    x = given[kind] if kind in given else column([0, 1, 1], kind)
    out = advantages(spec("grpo", "ab"), {"a": x, "b": [0, 0, 0]}, 3)
    assert out.dtype is torch.float32
    np.testing.assert_allclose(out, np.array([-2, 1, 1]) / 3**0.5, rtol=1e-5)
    wide = advantages(spec("grpo", "ab"), {"a": x, "b": torch.zeros(3, dtype=torch.float64)}, 3)
    assert wide.dtype is torch.float64


# 5. Finite, or an error that names the expression and the rollout

UNDEFINED = [
    ("a / b", "a / b", 0), ("log(b)", r"log\(b\)", 0), ("sqrt(b - 1)", r"sqrt\(b - 1\)", -3),
    ("b ** -1", r"b \*\* -1", 0), ("(b - 1) ** 0.5", r"\(b - 1\) \*\* 0\.5", 0),
    ("1 / (b - mean(b))", r"1 / \(b - mean\(b\)\)", 1),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "named", "value"), UNDEFINED)
def test_what_has_no_value_is_an_error_with_expression_and_rollout(expression, named, value):
    columns = {"a": [1.0, 2, 3, 4, 5], "b": [2.0, 3, 4, value, 5]}
    with pytest.raises(ValueError, match=rf"`{named}` is .*rollout 3 of group 'r'"):
        advantages(spec(expression, "ab"), columns, list("pqprq"))


@pytest.mark.parametrize(
    "expression",
    [
        "a / b if b > 0 else 0", "center(a) if b <= 0 else log(b)", "a - coalesce(mean(a / b, where=b > 0), 0)",
        "center(a / b, where=b > 0)", "zscore(log(b), where=b > 0, over=batch)", "0 if b <= 0 else sqrt(b)",
        "a / std(b) if std(b) > 0 else 0", "(log(b) if b > 0 else 1) - (1 / b if not b <= 0 else 2)",
    ],
)  # fmt: skip
def test_what_is_not_selected_never_raises(expression):
    columns = {"a": [1.0, 2, 3, 4], "b": [2.0, 0, 0, 0]}
    assert advantages(spec(expression, "ab"), columns, ["p", "q", "p", "q"]).isfinite().all()


def test_closed_gate_never_raises_and_an_open_one_does():
    text = (
        "signals:\n  b: {range: [0, 9]}\ncomponents:\n  a: {expr: log(b), when: %s, otherwise: -1}\nadvantage: grpo\n"
    )
    assert advantages(text % "b > 0", {"b": [1.0, 0.0]}, 2).isfinite().all()
    with pytest.raises(ValueError, match=r"`log\(b\)` .*rollout 1 of group 0"):
        advantages(text % "b < 9", {"b": [1.0, 0.0]}, 2)


@pytest.mark.parametrize("expression", ["exp(1000 * a)", "a * 1e30 * 1e30", "missing if a > 1 else a"])
def test_advantages_are_finite_or_an_error_names_the_rollout(expression):
    with pytest.raises(ValueError, match=r"rollout 1 of group 0"):
        advantages(spec(expression), {"a": [0.0, 2.0]}, 2)


# 6. The same bits


@pytest.mark.slow
@pytest.mark.parametrize("groups", [8, "ragged"])
@EVERY_SCHEME
def test_same_bits_on_repetition_and_from_the_written_module(scheme, groups, tmp_path):
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 300, 4096) if groups == "ragged" else 8
    columns = {"a": torch.tensor(rng.normal(size=4096), dtype=torch.float32), "b": rng.integers(0, 2, 4096)}
    fn = compiled(spec(scheme, "ab", b=0.3))
    path = tmp_path / "written.py"
    path.write_text(fn.source)
    found = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    expected = fn(columns, ids).advantages
    again = rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + spec(scheme, "ab", b=0.3)))
    for function in (fn, again, module.advantages):
        assert torch.equal(function(columns, ids).advantages, expected)


# What a call refuses

READS = """
signals:
  task: {values: [math, code]}
  hard: {range: [0, 1], level: group}
  price: {range: [0, 1], level: batch}
components:
  a: {values: [0, 1], weight: 1 + hard}
  b: {range: [0, 1], weight: 1 - price, when: task == math}
advantage: grpo + 0 * progress
"""
RIGHT = {
    "a": [0, 1, 0, 1],
    "b": [0.0, 0.5, 1.0, 0.5],
    "task": ["math", "code"] * 2,
    "hard": [0.5, 1, 0.5, 1],
    "price": 0,
}
WRONG = {
    "outside its values": ({"a": [0, 1, 0, 2]}, r"`a` is 2 at rollout 3 of group 'q'"),
    "outside its range": ({"b": [0.0, 0.5, 1.5, 0.5]}, r"`b` is 1.5 at rollout 2 of group 'p'"),
    "NaN": ({"a": [0, NAN, 0, 1]}, r"`a` is missing at rollout 1 of group 'q'"),
    "None": ({"a": [0, 1, None, 1]}, r"`a` is missing at rollout 2 of group 'p'"),
    "infinity": ({"b": torch.tensor([0, 0, math.inf, 0])}, r"`b` is inf at rollout 2 of group 'p'"),
    "unknown name": ({"task": ["math", "code", "art", "math"]}, r"`task` is 'art' at rollout 2 of group 'p'"),
    "numbers for names": ({"task": [0, 1, 0, 1]}, r"`task`"),
    "names for numbers": ({"a": ["0", "1", "0", "1"]}, r"`a`"),
    "all None": ({"a": [None] * 4}, r"`a`"),
    "not one a group": ({"hard": [0.5, 1, 0.5, 0.25]}, r"`hard` .*rollout 3 of group 'q'"),
    "not one a batch": ({"price": [0.5, 0.5, 0.5, 1]}, r"`price` .*rollout 3 of group 'q'"),
    "complex numbers": ({"a": torch.tensor([0, 1, 0, 1j])}, r"`a`"),
    "two axes": ({"a": torch.zeros(4, 1)}, r"`a`.*\(4, 1\)"),
    "too short": ({"a": [0, 1, 0]}, r"`a` has 3 values for 4"),
    "too long": ({"task": ["math"] * 5}, r"`task` has 5 values for 4"),
    "no column": ({"a": None}, r"`a`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_columns_are_refused_by_name(case):
    columns, message = WRONG[case]
    fn = compiled(READS)
    fn(RIGHT, list("pqpq"), step=1, total_steps=2)
    with pytest.raises(ValueError, match=message):
        fn(RIGHT | columns, list("pqpq"), step=1, total_steps=2)


def test_everything_wrong_with_the_columns_is_said_at_once():
    with pytest.raises(ValueError, match=r"(?s)(?=.*`a` is 7 at rollout 0)(?=.*`b` is -1 at rollout 3)"):
        compiled(READS)(RIGHT | {"a": [7, 0, 0, 0], "b": [0, 0, 0, -1.0]}, 2, step=1, total_steps=2)
    with pytest.raises(ValueError, match=r"(?s)(?=.*`a` is missing)(?=.*`price` is missing)"):
        compiled(READS)({"b": [0.5], "task": ["math"], "hard": [0]}, 1, step=1, total_steps=2)


@pytest.mark.parametrize(
    "groups",
    [3, 0, -2, 2.0, True, None, "pqp", list("pqp"), [["p"], ["q"], ["p"], ["q"]], [{}] * 4, torch.zeros(4),
     torch.zeros(2, 2, dtype=torch.long), torch.zeros(3, dtype=torch.long), np.zeros((4, 1), dtype=int), []],
)  # fmt: skip
def test_bad_groups_are_refused(groups):
    with pytest.raises(ValueError, match="group"):
        compiled(READS)(RIGHT, groups, step=1, total_steps=2)


@pytest.mark.parametrize("given", [{}, {"step": 1}, {"total_steps": 5}, {"step": 1, "total_steps": 0}])
def test_spec_that_moves_wants_step_and_total(given):
    with pytest.raises(ValueError, match="step"):
        compiled(spec("grpo * (1 + progress)"))({"a": [0.0, 1.0]}, 2, **given)


# Thresholds

GATED = "signals:\n  pass: {%s}\ncomponents:\n  x: {expr: 1, when: %s}\nadvantage: dr_grpo\n"


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("domain", ["range: [0, 1]", "values: [0, 0.1, 0.7, 1]"])
def test_column_that_holds_the_threshold_meets_it(domain, kind):
    for limit in (0.1, 0.7):
        passed = {"pass": column([limit, 0, 1, limit], kind)}
        for condition, expected in [
            (f"pass >= {limit}", [1, 0, 1, 1]),
            (f"pass > {limit}", [0, 0, 1, 0]),
            (f"pass <= {limit}", [1, 1, 0, 1]),
            (f"{limit} <= pass < 1", [1, 0, 0, 1]),
            (f"pass == {limit}", [1, 0, 0, 1]),
            (f"not pass < {limit}", [1, 0, 1, 1]),
            (f"raw(pass) >= {limit}", [1, 0, 1, 1]),
        ]:
            out = compiled(GATED % (domain, condition))(passed, 4)
            assert out.rewards["x"].tolist() == expected, (condition, kind)


@KINDS
@pytest.mark.parametrize(
    "condition", ["pass >= {}", "max(pass) >= {}", "coalesce(pass, 0) >= {}", "min(pass, 1) >= {}"]
)
def test_value_that_comes_from_a_column_meets_the_threshold_that_the_column_holds(condition, kind):
    # As a gated component does; beside a float64 column everything is computed in float64.
    components = "  ok: {values: [0, 1]}\n  pass: {range: [0, 1], when: ok >= 1}\n"
    for limit in (0.1, 0.7):
        text = f"components:\n{components}  x: {{expr: 1, when: '{condition.format(limit)}'}}\nadvantage: dr_grpo\n"
        for other in ("float32", "float64"):
            columns = {"ok": column([1, 1], other), "pass": column([limit, limit], kind)}
            assert compiled(text)(columns, 2).rewards["x"].tolist() == [1, 1], (limit, other)


@KINDS
@pytest.mark.parametrize("other", ["float32", "float64"])
def test_column_at_the_end_of_its_range_is_within_it(kind, other):
    text = "signals:\n  w: {range: [0, 1]}\ncomponents:\n  a: {range: [0.1, 0.3]}\nadvantage: dr_grpo + w\n"
    out = advantages(text, {"a": column([0.1, 0.3], kind), "w": column([0, 0], other)}, 2)
    np.testing.assert_allclose(out, [-0.1, 0.1], atol=2e-3)


@pytest.mark.parametrize("nothing", [[None] * 4, [NAN] * 4, torch.full((4,), NAN), np.array([None] * 4)])
@pytest.mark.parametrize(
    "policy", ["missing: ignore", "missing: zero", "when: b >= 2", "when: b >= 2, otherwise: ignore"]
)
def test_column_of_which_nothing_was_measured_is_missing_not_wrong(policy, nothing):
    text = f"components:\n  a: {{range: [0, 1], {policy}}}\n  b: {{values: [0, 1, 2]}}\nadvantage: dr_grpo\n"
    assert advantages(text, {"a": nothing, "b": [0, 1, 1, 0]}, 4).tolist() == [-0.5, 0.5, 0.5, -0.5]


@pytest.mark.parametrize("weight", ["max(a, where=b > 0)", "max(t)"])
def test_a_component_without_a_weight_adds_nothing(weight):
    """In the second group; in the first, z-scores are 0.707 and the weight of `a` is 1."""
    text = f"""lists: {{turn: {{}}}}
signals: {{t: {{values: [0, 1], level: turn}}}}
components: {{a: {{values: [0, 1], weight: "{weight}"}}, b: {{values: [0, 1]}}, c: {{values: [0, 1]}}}}
advantage: decoupled
numerics: {{eps: 0}}
"""
    columns = {"a": [0, 1, 0, 1], "b": [0, 1, 0, 0], "c": [0, 0, 0, 1], "t": [[1], [1, 0], [], []]}
    half = 0.5**0.5
    np.testing.assert_allclose(advantages(text, columns, 2), [-2 * half, 2 * half, -half, half], rtol=1e-6)
