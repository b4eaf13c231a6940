"""The training comparison of examples/trl and its log."""

import json
import sys
from argparse import Namespace

import numpy as np
import pandas
import pyarrow.parquet
import pytest
import torch
from places import EXAMPLES

pytest.importorskip("trl", reason="the example trains with TRL")

import rewardspec
from rewardspec.prove.replay import Log, read_log, replay

SPECS = {scheme: EXAMPLES / "trl" / f"tools_{scheme}.yaml" for scheme in ("grpo", "gdpo")}
LOG = EXAMPLES / "trl" / "rollouts.parquet"
sys.path += [str(EXAMPLES), str(EXAMPLES / "trl")]

import compare  # noqa: E402
import log_comparison  # noqa: E402
import tool_calls  # noqa: E402


@pytest.fixture(scope="module")
def rows():
    return pyarrow.parquet.read_table(LOG).to_pylist()


def batches(rows):
    found = {}
    for row in rows:
        found.setdefault(row["step"], []).append(row)
    return found


def test_the_two_specs_differ_in_one_line():
    lines = [path.read_text().splitlines() for path in SPECS.values()]
    different = [pair for pair in zip(*lines, strict=True) if len(set(pair)) > 1]
    assert different == [("advantage: grpo", "advantage: gdpo")]


@pytest.mark.parametrize(
    ("arm", "of", "was", "now"),
    [
        ("decoupled", "gdpo", "advantage: gdpo", "advantage: decoupled"),
        ("grpo_sizes", "grpo", "advantage: grpo", "advantage: whiten(grpo)"),
        ("gdpo_shares", "gdpo", "format: {values: [0, 1]}", "format: {values: [0, 1], weight: 0.369}"),
    ],
)
def test_the_other_arms_differ_in_one_thing(arm, of, was, now):
    text = (EXAMPLES / "trl" / f"tools_{arm}.yaml").read_text()
    assert rewardspec.loads(text).fingerprint == rewardspec.loads(SPECS[of].read_text().replace(was, now)).fingerprint


def test_the_weight_of_format_gives_it_the_share_that_it_has_in_grpo():
    share = {
        arm: rewardspec.simulate(EXAMPLES / "trl" / f"tools_{arm}.yaml", rollouts=LOG).signal.shares["format"]
        for arm in ("grpo", "gdpo", "gdpo_shares")
    }
    assert share["gdpo_shares"] == pytest.approx(share["grpo"], rel=1e-3)
    assert share["gdpo"] > 2.9 * share["grpo"]


def test_log_holds_whole_batches_of_both_runs(rows):
    assert LOG.stat().st_size < 300_000
    assert {row["scheme"] for row in rows} == {"grpo", "gdpo"}
    for batch in batches(rows).values():
        assert len({(row["scheme"], row["seed"]) for row in batch}) == 1
        assert len(batch) == 256
        ids, counts = np.unique([row["prompt_id"] for row in batch], return_counts=True)
        assert len(ids) == 64
        assert set(counts) == {4}


@pytest.mark.parametrize("scheme", SPECS)
def test_advantages_in_the_log_are_the_specs(rows, scheme):
    fn = rewardspec.compile(SPECS[scheme])
    mine = batches([row for row in rows if row["scheme"] == scheme])
    assert len(mine) >= 5
    for step, batch in mine.items():
        columns = {name: [row[name] for row in batch] for name in ("format", "correctness")}
        out = fn(columns, [row["prompt_id"] for row in batch], step=step)
        stored = torch.tensor([row["advantage"] for row in batch])
        torch.testing.assert_close(out.advantages, stored, rtol=1e-6, atol=1e-6)


def test_rewards_in_the_log_are_those_of_its_completions(rows):
    gold = {task["prompt_id"]: task for task in tool_calls.tasks()}
    assert all(gold[row["prompt_id"]]["prompt"] == row["prompt"] for row in rows)
    texts = [row["completion"] for row in rows]
    assert tool_calls.format(texts) == [row["format"] for row in rows]
    found = tool_calls.correctness(texts, [gold[row["prompt_id"]]["gold"] for row in rows])
    assert found == pytest.approx([row["correctness"] for row in rows])


@pytest.mark.parametrize("scheme", SPECS)
def test_log_can_be_replayed_as_it_is(rows, scheme):
    spec = rewardspec.load(SPECS[scheme])
    found = replay(spec, read_log(LOG, spec))
    assert (found.rollouts, found.groups, found.steps) == (len(rows), len(rows) // 4, len(batches(rows)))


# 6 R / 4 - 3 by hand: R is 1 for the name, key overlap, and 1 for each right value
@pytest.mark.parametrize(
    ("call", "reward"),
    [
        ('{"name": "weather", "parameters": {"city": "rome", "day": "friday"}}', 3.0),  # R = 1 + 1 + 2
        ('{"name": "weather", "parameters": {"day": "friday", "city": "rome"}}', 3.0),
        ('{"name": "weather", "parameters": {"city": "rome", "day": "monday"}}', 1.5),  # 1 + 1 + 1
        ('{"name": "weather", "parameters": {"city": "rome"}}', 0.75),  # 1 + 1/2 + 1
        ('{"name": "weather", "parameters": {"city": "rome", "topic": "music"}}', 0.5),  # 1 + 1/3 + 1
        ('{"name": "weather", "parameters": {}}', -1.5),  # 1 + 0 + 0
        ('{"name": "weather", "parameters": "rome"}', -1.5),
        ('{"name": "trains", "parameters": {"city": "rome", "day": "friday"}}', -3.0),
        ('{"name": "weather", "parameters": ', -3.0),
        ('["weather"]', -3.0),
    ],
)
def test_correctness_grades_a_call(call, reward):
    gold = json.dumps({"name": "weather", "parameters": {"city": "rome", "day": "friday"}})
    text = f"<tool_call> {call} </tool_call>"
    found = tool_calls.correctness([text, f"{text} {text}", call], [gold] * 3)
    assert found == pytest.approx([reward, -3.0, -3.0])


def test_format_wants_each_tag_once_and_in_order():
    right = "<think> a </think> <tool_call> b </tool_call>"
    wrong = [right + " c", "<tool_call> b </tool_call> <think> a </think>", right.replace("a", "<think> a"), "a"]
    assert tool_calls.format([right, *wrong]) == [1, 0, 0, 0, 0]


def test_every_wanted_answer_is_all_right_and_in_the_vocabulary():
    tasks, words = tool_calls.tasks(), tool_calls.tokenizer()
    answers = [tool_calls.written(task["gold"]) for task in tasks]
    assert set(tool_calls.format(answers)) == {1}
    assert set(tool_calls.correctness(answers, [task["gold"] for task in tasks])) == {3}
    assert words.batch_decode(words(answers).input_ids) == answers


def test_comparison_tells_groups_apart_as_the_paper_does():
    # GDPO, Sec. 2: totals (0, 1) and (0, 2) are both -+0.7071 in GRPO; in GDPO the second is -+1.4142.
    log = Log({"a": [0, 1, 0, 1], "b": [0, 0, 0, 1]}, list("xxyy"), [0] * 4)
    spec = "rewardspec: 1\ncomponents: {a: {values: [0, 1]}, b: {values: [0, 1]}}\nadvantage: SCHEME\n"
    grpo, decoupled = (
        log_comparison.advantages(rewardspec.loads(spec.replace("SCHEME", s)), log) for s in ("grpo", "decoupled")
    )
    assert grpo == pytest.approx([-0.7071, 0.7071, -0.7071, 0.7071], abs=1e-4)
    assert decoupled == pytest.approx([-0.7071, 0.7071, -1.4142, 1.4142], abs=1e-4)
    assert [log_comparison.distinct_groups(a, log) for a in (grpo, decoupled)] == [1, 2]
    assert [log_comparison.levels(a, log) for a in (grpo, decoupled)] == [2, 4]


def test_comparison_counts_pairs_in_another_order_and_signs_that_flip():
    log = Log({}, list("xxxyyy"), [0] * 6)
    a, b = np.array([3.0, 2, 1, 1, 0, -1]), np.array([1.0, 2, 2, -1, 0, 1])
    # x: 3>2 against 1<2, 3>1 against 1<2, 2>1 against a tie; y: all three pairs turned round, two signs too
    assert log_comparison.agreement(a, b, log) == pytest.approx((0, 1 / 6, 5 / 6))
    assert log_comparison.flips(a, b) == pytest.approx(2 / 6)
    assert log_comparison.most_disputed(a, b, log) == [3, 4, 5]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what trainers say is not about us
def test_training_logs_the_rollouts_it_was_trained_on(tmp_path):
    import train

    scheme = "gdpo"
    sizes = {"steps": 2, "group": 4, "prompts": 3, "learning_rate": 1e-3}
    options = Namespace(out=tmp_path, warm_up_examples=32, warm_up_steps=40, **sizes)
    rollouts = train.train(scheme, 0, options)
    table = pyarrow.Table.from_pylist(rollouts, schema=train.SCHEMA)
    fn = rewardspec.compile(SPECS[scheme])
    assert {(row["scheme"], row["seed"]) for row in table.to_pylist()} == {(scheme, 0)}
    assert list(batches(rollouts)) == [0, 1]
    for batch in batches(rollouts).values():
        columns = {name: [row[name] for row in batch] for name in ("format", "correctness")}
        out = fn(columns, [row["prompt_id"] for row in batch])
        assert len(batch) == 12
        assert out.advantages.tolist() == pytest.approx([row["advantage"] for row in batch], abs=1e-6)
    assert any(row["advantage"] for row in rollouts)


def run_of(formats, advantages):
    """A run of one rollout a step, all right where the format is."""
    correctness = [3.0 if value else -3.0 for value in formats]
    columns = {"format": formats, "correctness": correctness, "advantage": advantages}
    return pandas.DataFrame({"step": range(len(formats)), **columns})


def test_pairs_of_arms_are_of_the_seeds_that_both_have(tmp_path):
    end = compare.LAST
    for arm, seed, right in (("gdpo", 0, 10), ("gdpo", 1, 20), ("decoupled", 1, 15), ("decoupled", 2, 25)):
        run_of([1.0] * right + [0.0] * (end - right), [1.0] * end).to_parquet(tmp_path / f"{arm}-{seed}.parquet")
    lines = compare.arms_table(compare.outcomes(tmp_path)).splitlines()
    # format: 10/25 and 20/25, mean 0.6, deviation 0.4 / sqrt(2); of seed 1 alone 20/25 - 15/25 = 0.2
    assert any(line.startswith("| GDPO | 2 | 0.600 ± 0.283 |") for line in lines)
    assert next(line for line in lines if "size, at GDPO's weights" in line).split(" | ")[1:3] == ["1", "+0.200"]
    assert not any("shares" in line for line in lines)


def test_table_is_of_the_last_steps_and_paired_by_seed():
    end = compare.LAST
    runs = {
        "grpo": {
            s: run_of([0.0] * 75 + [1.0] * n + [0.0] * (end - n), [0.0] * (75 + end)) for s, n in ((0, 5), (1, 15))
        },
        "gdpo": {
            s: run_of([0.0] * 75 + [1.0] * n + [0.0] * (end - n), [1.0] * (75 + end)) for s, n in ((0, 10), (1, 15))
        },
    }
    lines = {line.split("|")[1].strip(): line for line in compare.table(runs).splitlines()}
    # 5/25 and 15/25: mean 0.4, deviation 0.4 / sqrt(2); 10/25 and 15/25: 0.5, 0.2 / sqrt(2); differences 0.2 and 0
    assert lines["format, end"] == "| format, end | 0.400 ± 0.283 | 0.500 ± 0.141 | +0.100 ± 0.141 | 1 of 2 |"
    # 0.2 * 3 - 0.8 * 3 = -1.8 and 0.6; -0.6 and 0.6
    assert lines["correctness, end"].startswith("| correctness, end | -0.600 ± 1.697 | 0.000 ± 0.849 |")
    assert lines["rollouts without signal"].startswith("| rollouts without signal | 1.000 ± 0.000 | 0.000 ± 0.000 |")
