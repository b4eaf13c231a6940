"""Our own rollout log, read as a run: what adapters log and what the spec computed comes back."""

import json

import pytest

pytest.importorskip("pyarrow")

import rewardspec
from rewardspec.adapters.common.rollout_log import Beside, log_batch, numbered, writer_of
from rewardspec.logs.open import open_run
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.logs.rows import BadLog

SPEC = """\
rewardspec: 1
name: logged
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], missing: ignore, weight: bonus}
define: {bonus: 1}
advantage: grpo
"""
COLUMNS = {"correct": [1, 0, 1, 1], "style": [0.5, None, 0.1, 0.2]}
GROUPS = ["x", "y", "x", "y"]
TEXTS = {
    "prompt": [[{"role": "user", "content": "q"}], [{"role": "user", "content": "r"}]] * 2,
    "completion": ["a", "b", "c", "d"],
}


def logged(folder, steps, **options):
    """A run with these steps; the results."""
    spec = rewardspec.loads(SPEC, constants={"bonus": 3}).under("trl")
    fn, writer, found = rewardspec.compile(spec), writer_of(RolloutLog(folder, **options), spec, "trl", "trl"), []
    for step in steps:
        moment = {"step": step, "total_steps": 10, "seed": 0}
        found.append(fn(COLUMNS, GROUPS, **moment))
        log_batch(
            writer, spec, COLUMNS, found[-1], numbered(GROUPS), **moment, before=None, ids=GROUPS,
            beside=lambda: Beside(TEXTS),
        )  # fmt: skip
    writer.flush()
    return found


def test_our_own_log_is_read(tmp_path):
    results = logged(tmp_path, [9, 10])
    run = open_run([tmp_path])
    steps = list(run.steps())
    assert run.format == "rewardspec"
    assert run.spec.text == SPEC
    assert [step.number for step in steps] == [9, 10]
    for step, result in zip(steps, results, strict=True):
        assert step.groups == [0, 1, 0, 1]
        assert step.columns["rewardspec/group_id"] == GROUPS
        assert step.columns["correct"] == [1, 0, 1, 1]
        assert step.columns["style"] == [0.5, None, 0.1, 0.2]
        assert step.columns["prompt"] == ["q", "r", "q", "r"]
        assert step.columns["completion"] == ["a", "b", "c", "d"]
        assert step.advantages == pytest.approx(result.advantages.tolist())
        assert step.columns["rewardspec/share/style"] == pytest.approx(result.shares["style"].tolist())
    assert run.spec.constants == {"bonus": "3"}


def test_two_batches_of_a_step_stay_two(tmp_path):
    logged(tmp_path, [1, 1, 2])
    run = open_run([tmp_path])
    assert [(step.number, len(step)) for step in run.steps()] == [(1, 4), (1, 4), (2, 4)]


def test_files_of_a_run_that_was_resumed_before_them_are_not_read(tmp_path):
    logged(tmp_path, [1, 2, 3, 4])
    logged(tmp_path, [3])
    run = open_run([tmp_path])
    assert [step.number for step in run.steps()] == [1, 2, 3]
    assert "files: 1 are of a run that was resumed before them, and are not read" in run.lost


def test_texts_that_were_hashed_are_said(tmp_path):
    logged(tmp_path, [1], text="hash")
    run = open_run([tmp_path])
    assert "texts: the run logged their hashes" in run.lost
    assert "prompt_hash" in run.columns and "prompt" not in run.columns


@pytest.mark.parametrize("about, reason", [({"schema": 2}, "update rewardspec"), ([1], "is no JSON object")])
def test_a_log_of_a_later_version_is_refused(tmp_path, about, reason):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"rewardspec/step": [1], "rewardspec/group": [0]})
    pq.write_table(table.replace_schema_metadata({"rewardspec": json.dumps(about)}), tmp_path / "step_1.parquet")
    with pytest.raises(BadLog, match=reason):
        open_run([tmp_path])
