"""Laws that no rounding may break: sums that cancel, branches that are not chosen, what a float cannot hold.

Nothing here may depend on the machine: `make test-processors` runs this file under several instruction sets.
"""

import math

import numpy as np
import pytest
import torch

import rewardspec
from rewardspec.ops.elementwise import ELEMENTWISE

pytestmark = pytest.mark.slow

TYPES = [torch.float32, torch.float64]
ROOT_HALF = math.sqrt(0.5)


def compiled(body, **constants):
    return rewardspec.compile(rewardspec.loads("rewardspec: 1\n" + body, constants=constants))


def advantages(body, columns, groups):
    return compiled(body)(columns, groups).advantages.tolist()


# Terms that cancel

TWO_RANGES = "components:\n  a: {range: [0, 1]}\n  b: {range: [0, 1]}\nadvantage: "
MIRRORED = {  # body: b is always the mirror image of a, so the two z-scores cancel in every group
    "binary": TWO_RANGES.replace("range", "values") + "decoupled",
    "graded": TWO_RANGES + "decoupled",
    "weighted": TWO_RANGES.replace("]}", "], weight: 0.3}") + "decoupled",
    "weighted by group": TWO_RANGES.replace("]}", "], weight: 0.1 + group_size}") + "decoupled",
    "ignored": TWO_RANGES.replace("]}", "], missing: ignore}") + "decoupled",
    "written out": TWO_RANGES + "zscore(a) * 0.3 + zscore(b) * 0.3",
    "subtracted": TWO_RANGES + "zscore(a) - zscore(1 - b)",
    "centered": TWO_RANGES + "center(a) + center(b)",
}


def mirrored(kind, binary, seed=0, sizes=range(2, 24)):
    """Columns a and 1 - a, and group ids, for groups of every size."""
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, 2, n) if binary else rng.integers(0, 9, n) / 8 for n in sizes for _ in range(4)]
    groups = [i for i, x in enumerate(drawn) for _ in x]
    a = torch.tensor(np.concatenate(drawn)).to(kind)
    return {"a": a, "b": 1 - a}, groups


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", MIRRORED)
def test_terms_that_cancel_give_exactly_nothing(name, kind):
    body = MIRRORED[name]
    columns, groups = mirrored(kind, name == "binary")
    out = compiled(body)(columns, groups)
    assert out.advantages.count_nonzero() == 0
    assert out.metrics()["groups_without_signal"] == out.metrics()["rollouts_without_signal"] == 1
    for size in (2, 3, 7, 16):  # rows of groups that stand together
        columns, _ = mirrored(kind, name == "binary", seed=size, sizes=[size] * 30)
        assert compiled(body)(columns, size).advantages.count_nonzero() == 0


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", MIRRORED)
def test_a_batch_of_nothing_but_noise_is_not_whitened_into_advantage(name, kind):
    body, _, scheme = MIRRORED[name].rpartition("advantage: ")
    columns, groups = mirrored(kind, name == "binary")
    whitened = compiled(f"{body}advantage: whiten({scheme})")
    assert whitened(columns, groups).advantages.count_nonzero() == 0
    # with one live group beside them, the others still get exactly nothing
    extra = {n: torch.cat([x, x.new_tensor([0.0, 1.0])]) for n, x in columns.items()}
    out = whitened(extra, [*groups, -1, -1])
    assert out.advantages.count_nonzero() == 2
    assert out.metrics()["groups_without_signal"] == pytest.approx(1 - 1 / (max(groups) + 2))


def test_decoupled_rewards_that_cancel_in_one_group():
    """z of 1, 0, 0, 0 and of 0, 1, 1, 1 sum to nothing; GDPO's math set-up."""
    spec = rewardspec.load("specs/gdpo/math.yaml")
    for advantage in ("decoupled", "gdpo"):
        fn = rewardspec.compile(rewardspec.loads(spec.source.text, advantage=advantage))
        out = fn({"correct": [1, 0, 0, 0], "tokens": [9000, 100, 100, 100]}, 4)
        assert out.advantages.tolist() == [0, 0, 0, 0]
        assert out.metrics()["groups_without_signal"] == 1


@pytest.mark.parametrize("kind", TYPES)
def test_small_sums_that_do_not_cancel_stay(kind):
    """1e-4 of the largest term is far above rounding; the mean of 1e6 and 1e6 + 0.5 is exact."""
    body = "components:\n  a: {range: [-2, 2]}\n  b: {range: [-2, 2]}\nadvantage: center(a) + center(b)"
    a = torch.tensor([1.0, -1.0], dtype=kind)
    b = torch.tensor([-0.9999, 0.9999], dtype=kind)
    assert advantages(body, {"a": a, "b": b}, 2) == pytest.approx([1e-4, -1e-4], rel=1e-2)
    body = "components:\n  a: {range: [0, 1e7]}\nadvantage: center(a)"
    a = torch.tensor([1e6, 1e6 + 0.5, 1e6 + 1], dtype=kind)
    assert advantages(body, {"a": a}, 3) == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("scheme", ["grpo", "dr_grpo", "rloo", "decoupled"])
def test_the_value_at_the_mean_has_no_advantage(scheme, kind):
    """The mean of 0.1, 0.2 and 0.3 is 0.2."""
    body = "components: {a: {values: [0.1, 0.2, 0.3]}}\nadvantage: " + scheme
    first, middle, last = advantages(body, {"a": torch.tensor([0.1, 0.2, 0.3], dtype=kind)}, 3)
    assert middle == 0 and first == pytest.approx(-last, rel=1e-5) and first < 0


def test_an_overflow_that_is_clipped_away_leaves_the_rest_of_its_group_alone():
    body = """
signals: {x: {range: [0, 2000]}}
components: {a: {values: [0, 1]}}
advantage: clip(zscore(a) - exp(x) + 1, -5, 5)
"""
    found = advantages(body, {"a": [1, 0, 0], "x": [0, 0, 1000]}, 3)
    assert found == pytest.approx([1.1547, -0.57735, -5], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_columns_of_the_caller_stay_as_they_are(kind):
    columns = {"a": torch.tensor([0.0, 0.2, 0.4, 0.9], dtype=kind), "b": torch.tensor([0.1, 0.0, 0.3, 1], dtype=kind)}
    before = {name: x.clone() for name, x in columns.items()}
    lines = "".join(f"  {name}: {{range: [0, 1]}}\n" for name in columns)
    for scheme in ("grpo", "decoupled", "gdpo", "reinforce_baseline", "whiten(a)", "zscore(a - mean(a), over=batch)"):
        for groups in (2, 4, [0, 1, 0, 1]):
            compiled(f"components:\n{lines}advantage: {scheme}")(columns, groups)
            assert all(torch.equal(x, before[name]) for name, x in columns.items())


def test_metrics_measure_spread_as_the_schemes_do():
    """0.1 + 0.6 and 0.7 are equal as real numbers, and differ in float32 and float64."""
    body = "components:\n  a: {range: [0, 1]}\n  b: {range: [0, 1]}\nadvantage: total"
    for kind in TYPES:
        columns = {"a": torch.tensor([0.1, 0.7], dtype=kind), "b": torch.tensor([0.6, 0], dtype=kind)}
        assert compiled(body)(columns, 2).metrics()["groups_without_signal"] == 1


# What is not chosen

UNCHOSEN = [  # `d` is the same for both rollouts of the group, whose `a` differs
    "minmax(x)",
    "1 - x / n if n > 0 else 0",
    "(max(x) - x) / (max(x) - min(x)) if max(x) > min(x) else 1",
    "coalesce(1 - x / n if n > 0 else missing, 1 - n)",
    "min(1 - log(n + 1) + exp(x), 3)",
    "max(1 - exp(x), -3) + n",
    "zscore(1 - x / n, where=n > 0)",
    "std(1 - x / n, where=n > 0)",
    "center(x + exp(x), where=x < 0) + 1",
    "sum(a - exp(x), where=x < 0)",
]
TWO = (
    "signals: {{x: {{range: [0, 1000]}}, n: {{range: [0, 1]}}}}\ncomponents:\n  a: {{values: [0, 1]}}\n{}advantage: {}"
)


def two(d, scheme):
    line = d if d.startswith("{") else f'"{d}"'
    return TWO.format(f"  d: {line}\n", scheme)


@pytest.mark.parametrize("d", [*UNCHOSEN, "{expr: 1 - x / n, when: n > 0, otherwise: 0}"])
@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("grpo", ROOT_HALF), ("dr_grpo", 0.5), ("rloo", 1), ("batch_grpo", ROOT_HALF), ("reinforce_baseline", ROOT_HALF)],
)
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_not_chosen_does_not_hide_spread(d, scheme, expected, kind):
    columns = {"a": torch.tensor([1, 0]), "x": torch.tensor([900, 900], dtype=kind), "n": torch.tensor([0, 0])}
    found = advantages(two(d, scheme), columns, 2)
    assert found == pytest.approx([expected, -expected], abs=2e-5)


def test_stages_that_are_not_reached_do_not_hide_spread():
    d = "{stages: [a / 2, {add: 1 - x / n, when: n > 0}]}"
    assert advantages(two(d, "zscore(d)"), {"a": [1, 0], "x": [9, 9], "n": [0, 0]}, 2) == pytest.approx(
        [ROOT_HALF, -ROOT_HALF], abs=1e-5
    )


def test_a_subset_is_not_measured_by_what_is_outside():
    d = "loo(x + n, where=a >= 1)"
    found = advantages(two(d, "d"), {"a": [1, 1, 0], "x": [0.001, 0.002, 1000], "n": [0, 0, 0]}, 3)
    assert found == pytest.approx([-0.001, 0.001, 0], abs=1e-6)
    body = "components:\n  a: {range: [0, 1e30]}\n  b: {range: [0, 1]}\nadvantage: zscore(a + b, where=a < 2)"
    found = advantages(body, {"a": [0, 1, 1e30], "b": [0, 0, 0]}, 3)
    assert found == pytest.approx([-ROOT_HALF, ROOT_HALF, 0], abs=1e-5)


def test_a_second_group_is_not_measured_by_the_first():
    found = advantages(two("minmax(x)", "batch_grpo"), {"a": [1, 0, 1, 0], "x": [5, 5, 1, 2], "n": [0] * 4}, 2)
    assert found[0] > 0.5 > -0.5 > found[1]


# Missing in, missing out

NAMES = {"neg": "-x", "+": "x + y", "-": "x - y", "*": "x * y", "/": "x / (1 + abs(y))", "**": "(1 + abs(x)) ** y"}
NAMES |= {"minimum": "min(x, y)", "maximum": "max(x, y)", "log": "log(1 + abs(x))", "sqrt": "sqrt(abs(x))"}
NAMES |= {"comb": "comb(round(abs(x)), round(abs(y)))"}


@pytest.mark.parametrize("name", [name for name, op in ELEMENTWISE.items() if not op.boolean])
def test_every_operator_gives_missing_of_missing(name):
    text = NAMES.get(name, f"{name}(x)")
    columns = {"x": [None, 1, None, 1], "y": [1, None, None, 1]}
    body = f"""
signals: {{x: {{range: [-3, 3], missing: ignore}}, y: {{range: [-3, 3], missing: ignore}}}}
components: {{a: "present({text}) + 2"}}
advantage: a
"""
    one = "y" not in text
    assert advantages(body, columns, 4) == ([2, 3, 2, 3] if one else [2, 2, 2, 3])


@pytest.mark.parametrize("text", ["sign(m)", "m ** 0", "1 ** m", "m ** a", "a ** (m + 4)", "sign(m * g) ** 2"])
def test_signs_and_powers_of_what_is_missing_are_missing(text):
    body = f"""
signals: {{m: {{range: [-3, 3], missing: ignore}}, g: {{range: [-3, 3], missing: ignore, level: group}}}}
components: {{a: {{values: [0, 1]}}, d: "coalesce({text}, 7)"}}
advantage: d
"""
    found = advantages(body, {"a": [1, 1], "m": [None, 1], "g": [1, 1]}, 2)
    assert found == [7, 1]


# Whole numbers that a float has no place for

EPISODES = [1732232301, 1732232302, 1732232301, 1732232302]
BY = "signals: {e: {range: [0, .inf]}}\ncomponents: {a: {values: [0, 1, 3]}}\nadvantage: center(a, by=e)"


@pytest.mark.parametrize(
    "ids",
    [EPISODES, [float(e) for e in EPISODES], [*EPISODES[:3], None], np.array(EPISODES), torch.tensor(EPISODES)],
    ids=["list", "floats", "one missing", "numpy", "torch"],
)
def test_whole_numbers_beyond_the_float_are_refused(ids):
    body = BY.replace("inf]", "inf], missing: ignore")
    fn = compiled(body)
    with pytest.raises(fn.RolloutError, match=r"column `e` is 1732232301 at rollout 0 of group 0: float32 .* float64"):
        fn({"a": [1, 0, 1, 0], "e": ids}, 4)
    with pytest.raises(fn.RolloutError, match="rollout 0 of group 'y'"):
        fn({"a": [1, 0, 1, 0], "e": ids}, ["y", "x", "y", "x"])


@pytest.mark.parametrize("ids", [EPISODES, np.array(EPISODES), torch.tensor(EPISODES)], ids=["list", "numpy", "torch"])
def test_whole_numbers_are_told_apart_in_float64(ids):
    a = np.array([1.0, 0, 3, 1])
    assert advantages(BY, {"a": a, "e": ids}, 4) == [-1, -0.5, 1, 0.5]
    with pytest.raises(ValueError, match="float64 cannot hold"):
        advantages(BY, {"a": a, "e": torch.tensor([2**53 + 1, 1, 2, 3])}, 4)
    with pytest.raises(ValueError, match="no float holds"):
        advantages(BY, {"a": a, "e": [2**60 + 1, 1, 2, 3]}, 4)


def test_whole_numbers_that_are_held_are_let_be():
    body = "signals: {e: {range: [0, .inf]}}\ncomponents: {a: {values: [0, 1]}}\nadvantage: a * (e == 1048576000)"
    assert advantages(body, {"a": [1, 1], "e": [1048576000, 5]}, 2) == [1, 0]  # 125 * 2 ** 23
    assert advantages(body, {"a": [1, 1], "e": torch.tensor([2**24, 2**24 + 2])}, 2) == [0, 0]


@pytest.mark.parametrize("values", ["[16777216, 16777217]", "[0.1, 0.10000000001]", "[1e-46, 0]"])
def test_declared_values_that_float32_cannot_tell_apart(values):
    body = f"components: {{a: {{values: {values}}}}}\nadvantage: zscore(a)"
    pair = [float(v) for v in values[1:-1].split(",")]
    for column in (pair, torch.tensor(pair, dtype=torch.float32)):
        with pytest.raises(ValueError, match="only float64 can distinguish"):
            advantages(body, {"a": column}, 2)
    first, second = advantages(body, {"a": np.array(pair)}, 2)
    assert first == -second


def test_a_sum_of_zeros_has_no_spread():
    """`a` less its mean where `a` is 0: no term is left from which rounding could come."""
    body = "components: {a: {values: [0, 1]}, b: {range: [0, 1]}}\nadvantage: whiten(center(a, where=a == 0))"
    assert advantages(body, {"a": [0, 1, 0, 1], "b": [0, 1, 1, 0]}, 2) == [0, 0, 0, 0]
