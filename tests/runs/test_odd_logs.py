"""Logs of a shape that nobody meant: columns of another type, infinities, one huge group, an output inside the log."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.groups.rates import read_rates
from rewardspec.logs.files import log_files
from rewardspec.logs.open import open_run
from rewardspec.logs.outputs import BadPath
from rewardspec.logs.rows import BadLog, Unread, repeated, row_of
from rewardspec.logs.run import Run, Step
from rewardspec.pages.page import check_page
from rewardspec.runs.audit import MOST_OF_A_GROUP, of_steps
from rewardspec.runs.compare import MOST_PAIRED
from rewardspec.runs.health import StepHealth
from rewardspec.runs.replay import replay, replay_each

SPEC = """\
rewardspec: 1
name: one
components: {correct: {values: [0, 1]}, brief: {range: [0, 1]}}
outcome: correct >= 1
advantage: grpo
"""


def run_of(groups, advantages=None, **columns):
    step = Step(1, groups, {name: [*values] for name, values in columns.items()}, advantages, ())
    return Run((), "test", (), lambda: iter([step]))


@pytest.mark.parametrize("tokens", ["many", [[1], [2]], {"n": 1}, float("inf"), 10**400, [3, None]])
def test_tokens_that_are_no_numbers_are_no_lengths(tokens):
    columns = {"correct": [1, 0, 1, 0], "brief": [0.5, 0.1, 0.2, 0.3], "tokens": [tokens] * 4}
    found = replay(run_of(list("aabb"), **columns), [rewardspec.loads(SPEC)]).specs[0]
    assert all(component.with_length is None for component in found.components)


def test_infinite_advantages_of_a_log_are_told_and_not_compared():
    run = run_of(list("aabb"), [float("inf"), 0.0, None, 0.0], correct=[1, 0, 0, 0], brief=[1, 0, 0, 0])
    found = replay(run, [rewardspec.loads(SPEC)])
    assert found.specs[0].logged.rollouts == 2 and found.specs[0].notes == (
        "the log has 1 infinite advantages, which are not compared",
    )
    json.dumps(found.to_json(), allow_nan=False)


def test_a_huge_group_is_compared_and_shown_in_part():
    rng, n = np.random.default_rng(0), 4000
    correct, brief = (rng.random(n) < 0.5).astype(float), rng.random(n)
    other = SPEC.replace("name: one", "name: two").replace(
        "brief: {range: [0, 1]}", "brief: {range: [0, 1], weight: -1}"
    )
    specs = [rewardspec.loads(SPEC), rewardspec.loads(other)]
    found = replay(run_of(["a"] * n, correct=correct.tolist(), brief=brief.tolist()), specs)
    assert found.difference is not None and len(found.difference.rollouts) == MOST_OF_A_GROUP
    assert {row["group_size"] for row in found.difference.rollouts} == {n}
    shown = [row["advantage"] for row in found.difference.rollouts]
    sums = correct + brief
    assert max(shown) == pytest.approx((sums.max() - sums.mean()) / sums.std(ddof=1), rel=1e-3)
    assert min(shown) == pytest.approx((sums.min() - sums.mean()) / sums.std(ddof=1), rel=1e-3)
    some = np.linspace(0, n - 1, MOST_PAIRED).astype(int)
    i, j = np.triu_indices(MOST_PAIRED, 1)
    x, y = (correct + brief)[some], (correct - brief)[some]
    alike = np.mean(np.sign(x[i] - x[j]) == np.sign(y[i] - y[j]))
    assert found.difference.same_order == pytest.approx(alike, abs=1e-3)


@pytest.mark.parametrize(("dead", "said"), [((0.2, 0.6), True), ((0.6, 0.2), False)])
def test_dead_groups_are_named_as_the_cause_only_where_they_grow(dead, said):
    def at(k):
        late = k >= 6
        values = dict.fromkeys(StepHealth.__dataclass_fields__)
        values |= {"step": k, "rollouts": 8, "groups": 2, "groups_without_signal": dead[late]}
        return StepHealth(**{**values, "batch_factor": 3.0 if late else 1.0})

    (remark,) = of_steps([at(k) for k in range(12)])
    assert remark.code == "batch-step-amplifies" and ("what is left grows" in remark.message) == said


def test_a_page_does_not_overwrite_a_log_inside_the_folder_that_is_read(tmp_path):
    log = tmp_path / "run" / "001.jsonl"
    log.parent.mkdir()
    log.write_text("{}\n")
    (tmp_path / "link").symlink_to(log)
    for output in (log, tmp_path / "link"):
        with pytest.raises(BadPath, match="is read and would be overwritten"):
            check_page(output, [log.parent])
    check_page(log.parent / "page.html", [log.parent])


def test_a_condition_whose_number_is_not_known_is_not_passed(tmp_path):
    rows = [{"step": 1, "group": i // 2, "correct": i % 2, "brief": 0.5} for i in range(4)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spec.yaml").write_text(SPEC)
    replayed = ["replay", str(tmp_path / "log.jsonl"), "--from", "table", "--spec", str(tmp_path / "spec.yaml")]
    for condition, status in (("sign_flips > 0.5", 2), ("right > 0.1, batch_factor > 2", 1), ("right > 0.9", 0)):
        done = CliRunner().invoke(app, [*replayed, "--fail-on", condition])
        assert done.exit_code == status, done.output
        assert ("not known" in done.stderr) == (condition != "right > 0.9")


def test_many_columns_are_looked_through_once():
    names = [f"column {i}" for i in range(60_000)]
    assert repeated(names) is None and repeated([*names, *names[-2:]]) == names[-2]
    row = row_of("{" + ",".join(f'"{name}":0' for name in [*names, names[7]]) + "}")
    assert isinstance(row, Unread) and "`column 7` appears twice" in row.reason


def test_files_are_ordered_by_digits_of_any_kind(tmp_path):
    for name in ("1²3.jsonl", "10.jsonl", "9.jsonl"):
        (tmp_path / name).write_text("{}\n")
    assert [path.name for path in log_files([Path(tmp_path)])[0]] == ["1²3.jsonl", "9.jsonl", "10.jsonl"]


@pytest.mark.parametrize("rate", ["1e-9999999999", "1e9_999_999", "1e99999"])
def test_a_rate_with_a_huge_exponent_is_refused(rate):
    with pytest.raises(ValueError, match="from 0 to 1"):
        read_rates(f"correct={rate}")


def test_a_guarantee_is_not_decided_in_a_huge_group_and_that_is_said():
    n = 1500
    text = SPEC + "guarantees: {first: right_above_wrong()}\n"
    text = text.replace("brief: {range: [0, 1]}", "brief: {range: [0, 1], weight: 9}")
    columns = {"correct": [1, 0] * (n // 2) + [1, 0], "brief": [i % 7 / 7 for i in range(n)] + [0.0, 0.9]}
    found = replay(run_of(["a"] * n + ["b"] * 2, **columns), [rewardspec.loads(text)]).specs[0]
    assert found.notes == (
        "the guarantee 'first' may be broken in a group more (1 of more than 1,024 rollouts), which exact arithmetic "
        "did not decide",
    )
    assert found.audit[0].message == "at least 1 of 2 groups break the guarantee 'first'"


def test_values_that_python_takes_for_equal_are_told_apart():
    """Python's dicts have one key for True, 1 and 1.0."""
    level = [True, 1, 1.0, "1", None, float("inf"), "x" * 300 + "a", "x" * 300 + "b"]
    columns = {
        "correct": [1, 0] * len(level),
        "brief": [0.5] * 2 * len(level),
        "level": [v for v in level for _ in "ab"],
    }
    run = run_of([i // 2 for i in range(2 * len(level))], **columns)
    found = replay(run, [rewardspec.loads(SPEC)], by="level").specs[0].by
    json.dumps([asdict(row) for row in found], allow_nan=False)
    assert len(found) == 7 and sum(row.groups for row in found) == len(level)
    assert {(type(row.value), row.value): row.groups for row in found if row.value in (True, "1")} == {
        (bool, True): 1, (int, 1): 2, (str, "1"): 1,
    }  # fmt: skip


def test_rows_that_each_have_keys_of_their_own_take_no_more_than_they_have(tmp_path):
    """As columns they would be rows times keys, 400 million values."""
    log = tmp_path / "log.jsonl"
    with log.open("w") as file:
        for i in range(2000):
            own = {f"own {i} {k}": k for k in range(100)}
            file.write(json.dumps({"step": 0, "group": i // 4, "correct": i % 2, "brief": 0.5, **own}) + "\n")
    found = rewardspec.replay(log, rewardspec.loads(SPEC), format="table")
    assert found.specs[0].steps[0].rollouts == 2000
    with pytest.raises(BadLog, match="has no column `level`"):
        rewardspec.replay(log, rewardspec.loads(SPEC), format="table", by="level")


LISTED = """\
rewardspec: 1
name: turns
lists: {turn: {ordered: true}}
components: {correct: {values: [0, 1]}}
outcome: correct >= 1
guarantees: {first: right_above_wrong()}
advantage: grpo / position
"""


def test_a_list_that_no_column_is_read_of_has_its_length_from_the_log(tmp_path):
    spec, correct, lengths = rewardspec.loads(LISTED), [1.0, 0.0, 0.0, 0.0], [2, 1, 3, 0]
    with pytest.raises(BadLog, match=r"--columns rewardspec/length/turn=COLUMN"):
        replay(run_of(list("aabb"), correct=correct), [spec])
    found = replay(run_of(list("aabb"), correct=correct, **{"rewardspec/length/turn": lengths}), [spec]).specs[0]
    own = rewardspec.compile(spec)({"correct": correct}, list("aabb"), lengths={"turn": lengths}).nested()
    assert found.steps[0].advantage_spread == pytest.approx((max(own[0]) - min(own[1])) / 2)
    assert found.notes == ("the guarantee 'first' was not looked at: it reads a list of which the log has no column",)
    with pytest.raises(BadLog, match=r"`rewardspec/length/turn` is 1.5: it must be a whole number, 0 or more"):
        replay(run_of(list("aabb"), correct=correct, **{"rewardspec/length/turn": [1.5, 1, 1, -1]}), [spec])


def test_keep_and_refill_that_leave_no_group_or_some():
    text = SPEC + "keep: std(correct) > 0\nrefill: mean(brief)\n"
    for correct, kept in (([1, 1, 0, 0], 0.0), ([1, 0, 0, 0], 0.5)):
        run = run_of(list("aabb"), correct=correct, brief=[0.5, 0.1, 0.2, 0.3])
        found = replay(run, [rewardspec.loads(text)] * 2)
        (step,) = found.specs[0].steps
        assert step.groups_kept == kept and step.groups_without_signal == 1 - kept
        json.dumps(found.to_json(), allow_nan=False)


def test_a_spec_that_a_run_gives_no_advantages_is_left_out_of_those_that_are_tried():
    run = run_of(list("aabb"), correct=[1, 0, 0, 0], brief=[0.5, 0.1, 0.2, 0.3])
    absent = SPEC.replace("brief: {", "absent: {")
    found = replay_each(run, {"own": rewardspec.loads(SPEC), "absent": rewardspec.loads(absent)})
    assert found == {"own": replay(run, [rewardspec.loads(SPEC)]).specs[0]}


def test_a_table_whose_path_is_not_utf8_is_refused_in_words(tmp_path):
    folder = tmp_path / "l\udce9g"
    try:
        folder.mkdir()
    except (OSError, UnicodeError):
        pytest.skip("the file system has UTF-8 names alone")
    (folder / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadLog, match=r"l\\udce9g/a\.parquet: its path is not UTF-8"):
        open_run([folder])
