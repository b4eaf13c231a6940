"""What nothing asks for is not held against a spec; what is declared is what a column may hold."""

import math

import pytest
import torch

import rewardspec

HEAD = "rewardspec: 1\ncomponents:\n  a: {values: [0, 1]}\n  b: {values: [0, 1]}\n"


def call(text, columns, size=2, **given):
    return rewardspec.compile(rewardspec.loads(text))(columns, size, **given)


@pytest.mark.parametrize(
    "rest",
    [
        "  e: a - a * a\nadvantage: zscore(a + 1 / e if e != 0 else a)\n",
        "define: {limit: 0}\nadvantage: zscore(a / limit if limit > 0 else a)\n",
        "define: {limit: 0, inverse: 1 / limit}\nadvantage: zscore(a * inverse if limit > 0 else a)\n",
        "define: {limit: 0}\nadvantage: zscore(a * log(limit) if limit > 0 else a)\n",
    ],
)
def test_a_guard_that_never_opens_guards_what_has_no_value(rest):
    assert call(HEAD + rest, {"a": [0, 1], "b": [0, 0]}).advantages.tolist() == pytest.approx(
        [-(2**-0.5), 2**-0.5], abs=1e-5
    )


@pytest.mark.parametrize("rest", ["advantage: grpo * (1 / (a - a))", "advantage: grpo + log(a - a) ** 2"])
def test_what_never_has_a_value_is_an_error_where_it_is_asked_for(rest):
    with pytest.raises(rewardspec.SpecError, match="undefined"):
        rewardspec.loads(HEAD + rest + "\n")


def test_a_missing_value_divided_by_0_is_missing():
    text = (
        HEAD.replace("a: {values: [0, 1]}", "a: {values: [0, 1], missing: ignore}") + "  e: a / b\nadvantage: dr_grpo\n"
    )
    assert math.isnan(call(text, {"a": [None, 1], "b": [0, 1]}).rewards["e"][0])
    with pytest.raises(ValueError, match="division by 0"):
        call(text, {"a": [1, 1], "b": [0, 1]})


def test_a_weight_without_a_value_is_an_error_though_the_advantage_does_not_use_it():
    text = HEAD.replace("b: {values: [0, 1]}", "b: {values: [0, 1], weight: 1 / progress}") + "advantage: zscore(a)\n"
    with pytest.raises(ValueError, match="division by 0"):
        call(text, {"a": [0, 1], "b": [0, 1]}, step=0, total_steps=4)
    assert call(text, {"a": [0, 1], "b": [0, 1]}, step=2, total_steps=4).weights["b"] == 2


@pytest.mark.parametrize("advantage", ["grpo", "grpo * copies"])
def test_a_missing_score_of_a_kept_group_is_an_error(advantage):
    text = HEAD + f"keep: any(b)\nrefill: 1 / var(a) if var(a) > 0 else missing\nadvantage: {advantage}\n"
    with pytest.raises(ValueError, match="`refill` is missing at rollout 2"):
        call(text, {"a": [0, 1, 1, 1, 0, 1], "b": [0, 0, 1, 1, 0, 1]}, step=0)
    call(text, {"a": [1, 1, 0, 1, 0, 1], "b": [0, 0, 1, 1, 0, 1]}, step=0)  # the first is not kept


@pytest.mark.parametrize(
    ("declared", "given", "got"),
    [
        ("values: [-1/3, 1/3], outside: clip", [-0.1, None], [-1 / 3, 0]),
        ("range: [1, 5], outside: clip", [0.5, None], [1, 0]),
        ("range: [1, 5]", [2, None], [2, 0]),
        ("range: [0, 5], outside: clip", [-1, None], [0, 0]),
    ],
)
def test_the_0_for_a_missing_value_declares_no_other_value(declared, given, got):
    text = f"rewardspec: 1\ncomponents:\n  a: {{{declared}, missing: zero}}\nadvantage: dr_grpo\n"
    assert call(text, {"a": given}).rewards["a"].tolist() == pytest.approx(got)


@pytest.mark.parametrize("declared", ["values: [-1/3, 1/3]", "range: [1, 5]"])
def test_a_0_that_is_measured_has_to_be_declared(declared):
    text = f"rewardspec: 1\ncomponents:\n  a: {{{declared}, missing: zero}}\nadvantage: dr_grpo\n"
    with pytest.raises(ValueError, match="`a` is 0 at rollout 0"):
        call(text, {"a": [0, None]})


def test_a_sum_over_components_that_are_all_missing_is_0():
    text = (
        HEAD.replace("[0, 1]}", "[0, 1], missing: ignore}") + "advantage: center(a + sum(rewards, over=components))\n"
    )
    text = text.replace("a + sum", "coalesce(a, 0) + sum")
    assert call(text, {"a": [None, 1], "b": [None, 1]}).advantages.tolist() == [0, 1.5]


@pytest.mark.parametrize(
    "text",
    [
        "  e: {expr: a, when: log(c) <= 0.25}\nadvantage: dr_grpo + e\n",  # never above 0 where it is there
        "  e: a\nadvantage: a * (log(c) <= 0.25)\n",
        "  e: a\nadvantage: a if not log(c) > 0 else 0\n",
        "  e: a\nadvantage: min(a, 1 + 1 / c)\n",
        "  e: a\nadvantage: a + 0 * clip(1 / c, 0, 1)\n",
        "  e: {expr: a, when: 1 / c == 3, otherwise: a}\nadvantage: a + e\n",
        "  e: a\nadvantage: a if 1 / c > 0.5 or a < 2 else 0\n",
    ],
)
def test_what_is_known_anyway_is_still_asked_for(text):
    """The domains tell what each of these gives, but not for a rollout at which it has no value."""
    text = HEAD.replace("components:\n", "components:\n  c: {range: [0, 1]}\n") + text
    assert call(text, {"a": [0, 1], "b": [0, 0], "c": [0.5, 1]}).advantages.isfinite().all()
    with pytest.raises(ValueError, match=r"log of 0|division by 0"):
        call(text, {"a": [0, 1], "b": [0, 0], "c": [0.5, 0]})


def test_a_power_of_or_to_what_is_missing_is_missing():
    text = "rewardspec: 1\nsignals: {m: {range: [-2, 2], missing: ignore}}\ncomponents: {a: {values: [-1, 1]}}\n"
    text += 'advantage: "coalesce(a ** m, 7)"\n'
    assert call(text, {"a": [-1, 1], "m": [None, 2]}).advantages.tolist() == [7, 1]
    with pytest.raises(ValueError, match="an undefined power"):
        call(text, {"a": [-1, 1], "m": [0.5, 2]})


def asked_in(places):
    """A quotient that is asked for in many places, each behind a gate of its own."""
    gates = "".join(f"  {name}: {{values: [0, 1]}}\n" for name in places)
    terms = " + ".join(f"(a / b if {name} > 0 else 0)" for name in places)
    return f"{HEAD}{gates}  e: {terms}\nadvantage: dr_grpo\n"


@pytest.mark.parametrize("count", [7, 9, 30])
def test_however_many_places_ask_for_a_value_it_is_asked_for_in_one_of_them_alone(count):
    places = [f"g{i}" for i in range(count)]
    closed = {"a": [0.0, 1.0], "b": [1.0, 0.0], **{name: [1.0, 0.0] for name in places}}
    assert torch.isfinite(call(asked_in(places), closed).advantages).all()
    with pytest.raises(rewardspec.RolloutError, match="rollout 1"):
        call(asked_in(places), closed | {places[count // 2]: [1.0, 1.0]})
