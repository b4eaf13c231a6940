"""`Spec.needs`: what a spec asks of its trainer."""

import json

import pytest
from commands_in_process import run
from places import SPECS

import rewardspec
from rewardspec.adapters.common.by_group import beyond_a_group

SCHEDULE = "step total_steps progress"
PUBLISHED = {  # by hand, from the papers' formulas as the files state them
    "gdpo/math": "group batch tokens",  # `gdpo` ends with the batch's normalisation; a limit on tokens
    "gdpo/math_decoupled": "group tokens",  # without that step
    "gdpo/math_dr_grpo": "group tokens",
    "gdpo/code_filtered": "group batch tokens",
    "gdpo/tool_calling": "group batch",
    "gdpo/tool_calling_grpo": "group",
    "papo/papo": "group",
    "papo/orm_dapo": "group tokens",  # DAPO's penalty for long answers
    "prs/long": "group",
    "rc_grpo/rc_grpo": "group",  # reward tokens are drawn before the advantage
    "toolrl/original": "group",
    "toolrl/length": "group",  # words between the think tags, which a function counts
    "toolrl/length_dynamic": f"group {SCHEDULE}",  # a target that doubles over the run
    "toolrl/two_stage": "group step",  # a switch at step 30
    "vspo/vspo": "group batch step",  # draws groups again, by seed and step
    "vspo/uniform": "group batch step",
}


@pytest.mark.parametrize(("name", "needs"), PUBLISHED.items())
def test_published_specs(name, needs):
    assert rewardspec.load(SPECS / f"{name}.yaml").needs == {*needs.split()}


HEAD = """rewardspec: 1
signals: {tokens: {range: [0, .inf]}, task: {values: [x, y]}, hard: {range: [0, 1], level: group}}
components: {right: {values: [0, 1]}, form: {values: [0, 1]}}
"""
SPELLED = [
    ("right", ""),
    ("right * hard", ""),
    ("right - mean(right)", "group"),
    ("right / group_size", "group"),
    ("right - mean(right, over=batch)", "batch"),
    ("right / batch_size", "batch"),
    ("right - mean(hard, over=batch)", "group batch"),
    ("right - mean(mean(right), over=batch)", "group batch"),
    ("right * min(step / 10, 1)", "step"),
    ("right / total_steps", "total_steps"),
    ("right * progress", SCHEDULE),
    ("right - tokens / 1000", "tokens"),
    ("right if tokens >= 0 else 0 * tokens", ""),
    ("right + 0 * progress", ""),
    ("right * (1 if pi > 3 else mean(right, over=batch))", ""),
]


@pytest.mark.parametrize(("advantage", "needs"), SPELLED)
def test_only_what_is_left_after_simplification_is_asked_for(advantage, needs):
    assert rewardspec.loads(f"{HEAD}advantage: {advantage}\n").needs == {*needs.split()}


def test_sections_beside_the_advantage_ask_too():
    assert rewardspec.loads(f"{HEAD}keep: any(right > 0)\nadvantage: right\n").needs == {"group"}
    assert rewardspec.loads(f"{HEAD}keep: hard > 0.5\nrefill: hard\nadvantage: right\n").needs == {
        "group",
        "batch",
        "step",
    }
    weighted = HEAD.replace("form: {values: [0, 1]}", "form: {values: [0, 1], weight: 'mean(right, over=batch)'}")
    assert rewardspec.loads(f"{weighted}advantage: right\n").needs == {"batch"}, "its weight is a result"


def test_a_moment_or_a_dialect_changes_what_is_asked():
    spec = rewardspec.load(SPECS / "toolrl/two_stage.yaml")
    assert spec.at(step=3).needs == {"group"}
    math = rewardspec.load(SPECS / "gdpo/tool_calling.yaml")
    assert math.under("verl").needs == {"group", "batch", "tokens"}, "verl whitens over tokens"
    assert math.under("trl").needs == {"group", "batch"}


def test_tokens_that_a_function_of_the_spec_counts_are_not_asked_for():
    own = "rewardspec: 1\nsignals: {tokens: {use: toolrl.think_words}, right: {values: [0, 1]}}\n"
    own += "components: {short: {expr: right / (1 + tokens)}}\nadvantage: grpo\n"
    assert rewardspec.loads(own).needs == {"group"}


@pytest.mark.parametrize(
    ("advantage", "said"),
    [
        ("right - mean(right)", []),
        ("gdpo", ["whole batch"]),
        ("grpo / batch_size", ["whole batch"]),
        ("grpo * step / total_steps", ["reads `step`", "reads `total_steps`"]),
        ("grpo * progress", ["reads `progress`"]),
        ("gdpo * progress", ["whole batch", "reads `progress`"]),
    ],
)
def test_what_goes_beyond_a_group_is_said_by_its_name(advantage, said):
    found = beyond_a_group(rewardspec.loads(f"{HEAD}advantage: {advantage}\n"), "the worker")
    assert len(found) == len(said) and all(words in line for words, line in zip(said, found, strict=True)), found


def test_of_refill_alone_is_said():
    (line,) = beyond_a_group(rewardspec.load(SPECS / "vspo/vspo.yaml"), "the worker")
    assert line.endswith("has `refill`, which draws among the groups of a batch")


def test_explain_prints_them(tmp_path):
    done = run("explain", SPECS / "toolrl/length_dynamic.yaml")
    assert "  needs: group, step, total_steps, progress\n" in done.stdout
    (tmp_path / "alone.yaml").write_text(f"{HEAD}advantage: right\n")
    assert "  needs: nothing but its columns\n" in run("explain", tmp_path / "alone.yaml").stdout


def test_explain_gives_them_as_json():
    done = run("explain", SPECS / "gdpo/math.yaml", "--format", "json", "--at", "0,10")
    found = json.loads(done.stdout)
    assert found["needs"] == ["group", "batch", "tokens"]
    assert found["columns"][0]["name"] == "tokens" and found["components"][1]["value"] == "tokens <= limit"
    assert len(found["over_the_run"][0]["at"]) == 2
    assert {"definitions", "guarantees", "values", "fingerprint"} <= found.keys()
    assert run("explain", SPECS / "gdpo/math.yaml", "--format", "yaml").returncode == 2
