"""Proposals: those that belong to the place, all of which the checker takes."""

import pytest
from marked import HEAD, SPEC, proposed, split

from rewardspec.editor.completion import completions, fitting
from rewardspec.rewards.catalogue import all_rewards
from rewardspec.spec import check
from rewardspec.text.source import Source

ONE = HEAD + "components:\n  a: {values: [0, 1]}\n"


def test_keys_by_place():
    assert {"components", "advantage"} <= set(proposed(HEAD + "|"))
    assert "advantage" in proposed(ONE + "adv|") and "components" not in proposed(ONE + "adv|")
    assert {"use", "range", "id", "level"} <= set(proposed(HEAD + "signals:\n  a: {|"))
    assert "weight" not in proposed(HEAD + "signals:\n  a: {|")
    assert "weight" in proposed(ONE + "  b: {values: [0, 1], |")
    assert "values" not in proposed(ONE + "  b: {values: [0, 1], |")
    assert "missing" not in proposed(ONE + "  b:\n    expr: a\n    |")  # of measured ones alone
    assert proposed(ONE + "  b:\n    stages:\n      - add: a\n        |") == ["when"]
    assert set(proposed(HEAD + "numerics: {|")) == {"eps", "ddof"}
    assert set(proposed(HEAD + "state: {s: {|}}")) >= {"init", "range", "update", "by"}


def test_a_key_with_keys_of_its_own_begins_their_line():
    items = {item.label: item.insert for item in completions(*split(HEAD + "|"))}
    assert items["components"] == "components:\n  " and items["advantage"] == "advantage: "
    items = {item.label: item.insert for item in completions(*split(ONE + "  b:\n     use: x.y\n     |"))}
    assert items["with"] == "with:\n       "


@pytest.mark.parametrize("place", ["advantage: |", "advantage: gr|", "advantage:|"])
def test_schemes_come_first(place):
    assert {"grpo", "gdpo", "rloo", "dr_grpo", "decoupled"} <= set(
        proposed(SPEC.replace("advantage: grpo", place))[:12]
    )


def test_words_of_a_key():
    assert proposed(ONE + "  b: {range: [0, 1], missing: |") == ["error", "ignore", "zero"]
    assert proposed(SPEC.replace("level: group", "level: |")) == ["rollout", "group", "batch", "turn"]
    assert proposed("rewardspec: |") == ["1"]


def test_names_in_expressions():
    found = proposed(SPEC.replace("tokens <= limit", "|"))
    assert {"tokens", "task", "correct", "limit", "half", "mean", "clip", "step"} <= set(found)
    assert "length" not in found  # it is what is defined here
    assert proposed(SPEC.replace("tokens <= limit", "mean(tokens, |"))[:3] == ["over=", "where=", "by="]
    assert proposed(SPEC.replace("tokens <= limit", "half(tokens, |"))[:2] == ["x=", "y="]
    assert set(proposed(SPEC.replace("tokens <= limit", "mean(tokens, over=|"))) == {
        *("group", "batch", "components", "rollout")
    }
    assert proposed(SPEC.replace("tokens <= limit", "task == |"))[:2] == ["math", "code"]
    assert proposed(SPEC.replace("0.5 * x * y", "0.5 * |"))[:2] == ["x", "y"]
    assert proposed(SPEC.replace("tokens <= limit", "tokens a|")) == ["and", "or", "if", "else"]


def test_of_thousands_of_names_those_are_sent_that_begin_as_typed():
    text = ONE + "define:\n" + "".join(f"  d{i}: {i}\n" for i in range(1000)) + "advantage: d99"
    items = completions(*split(text + "|"))
    sent = fitting(items, text)
    assert len(items) > 1000 and [item.label for item in sent] == ["d99", *(f"d99{i}" for i in range(10))]
    assert len(fitting(items, text.removesuffix("d99"))) <= 300


def test_names_that_read_themselves():
    assert "s" in proposed(SPEC + "state:\n  s:\n    update: 0.5 * |")
    assert "length" in proposed(SPEC.replace("correct >= 1", "raw(|"))
    assert "length" not in proposed(SPEC.replace("correct >= 1", "max(|"))


def test_stages_are_keys_or_values():
    stages = ONE + "  b:\n    stages:\n      - "
    assert {"add", "when", "a"} <= set(proposed(stages + "|"))
    assert "a" in proposed(stages + "2 * a + |") and "add" not in proposed(stages + "2 * a + |")
    assert set(proposed(stages + "add: a\n        |")) == {"when"}


def test_only_ids_are_keys_of_a_state():
    text = SPEC + "state: {s: {init: 0, range: [0, 1], update: s, by: |}}\n"
    assert proposed(text) == ["prompt"]


def test_reward_functions_with_their_options():
    use = ONE + "  b: {use: "
    assert {reward.name for reward in all_rewards()} == set(proposed(use + "|"))
    assert proposed(use + "toolrl.correctness(|")[:4] == ["granularity=", "pairing=", "lo=", "hi="]
    assert proposed(use + "toolrl.correctness(granularity=|") == ["original", "fine", "intermediate", "coarse"]
    assert proposed(use + "prs.answer, with: {lowercase: |") == ["true", "false"]
    assert proposed(use + "'toolrl.correctness(lo=-1, granularity=|'}")[0] == "original"
    assert proposed(use + "toolrl.correctness(only_when=|)}")[0] == "a"
    beside = ONE + "  b:\n    use: toolrl.correctness\n    with:\n      "
    assert "granularity" in proposed(beside + "|")
    assert proposed(beside + "granularity: c|") == ["original", "fine", "intermediate", "coarse"]
    assert "a" in proposed(beside + "only_when: |")


def test_every_reward_function_and_option_is_one():
    """The checker names what it does not know."""
    for name in proposed(ONE + "  b: {use: |"):
        for option in proposed(ONE + f"  b: {{use: {name}(|"):
            assert option.endswith("=")
            values = proposed(ONE + f"  b: {{use: {name}({option}|")
            for value in values if option != "only_when=" else []:
                _, report = check(Source("", ONE + f"  b: {{use: {name}({option}{value})}}\nadvantage: grpo\n"))
                codes = {d.code for d in report.diagnostics}
                assert not codes & {"unknown-reward", "unknown-option", "bad-option"} or name == "judge.rubric", codes


@pytest.mark.slow
def test_every_key_is_one():
    """The checker names what it does not know."""
    for text in (
        HEAD + "|",
        ONE + "  b: {|}",
        HEAD + "signals: {b: {|}}",
        HEAD + "lists: {b: {|}}",
        HEAD + "numerics: {|}",
    ):
        labels = proposed(text)
        assert labels
        for label in labels:
            _, report = check(Source("", text.replace("|", f"{label}: 1")))
            assert "unknown-key" not in {d.code for d in report.diagnostics}, label


def test_findings_that_can_be_allowed():
    assert "phantom-gradient" in proposed(ONE + "allow:\n  ph|")
    of_component = proposed(ONE + "  b: {expr: a, allow: {|")
    assert "zero-weight" in of_component and "phantom-gradient" not in of_component


@pytest.mark.parametrize("text", ["about: so|", "# gr|", "advantage: grpo # so|", "advantage: 12|", "name: |"])
def test_nothing_in_free_text_and_numbers(text):
    assert proposed(ONE + text) == []


@pytest.mark.parametrize(
    "text",
    [
        "components:\n  a: {values: [0, 1\n  b: {expr: |",
        "components:\n  a:\n    expr: 'x\n  b: {expr: |",
        "components:\n  a\n  b: {expr: |",
        "components: {a: {values: [0, 1]}, b: {expr: |\nadvantage: grpo\n",
    ],
)
def test_names_in_files_that_are_no_yaml(text):
    assert "mean" in proposed(HEAD + text)
