"""The rollout log: files of our own, what is in them, and what is left of them when a run ends badly."""

import json
import logging
import os
import signal
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from places import ROOT

import rewardspec
from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.rollout_log import Beside, kept_of, log_batch, log_of, numbered, writer_of
from rewardspec.logs import rollout_log
from rewardspec.logs.rollout_log import LogWriter, RolloutLog, about_of, files_of
from rewardspec.logs.rollout_table import Column

SPEC = """\
rewardspec: 1
name: logged
lists: {turn: {ordered: true}}
signals:
  called: {values: [0, 1], level: turn, missing: ignore}
  source: {values: [math, code]}
  task: {id: true, level: group}
  hard: {values: [0, 1], level: group}
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], missing: ignore, weight: progress if hard else 2 * bonus}
  coded: {expr: correct, when: source == code, weight: 0.1}
  tool: {expr: called, weight: 0.5}
state:
  level_of: {init: 0.5, range: [0, 1], by: task, update: 0.5 * level_of + 0.5 * mean(correct)}
  price: {init: 0.25, range: [0, 9], update: "price + mean(correct, over=batch)"}
define: {bonus: 1}
keep: std(correct) > 0
refill: 1 - level_of
advantage: decoupled * (1 - price / 10)
"""
COLUMNS = {
    "correct": [1, 0, 1, 1, 0, 1],
    "style": [0.5, None, 0.1, float("nan"), 0.2, 0.4],
    "called": [[1, 0], [], [1, None, 0], [1], [0], [1, 1]],
    "source": ["code", "code", "math", "math", "code", "code"],
    "hard": [1, 1, 0, 0, 1, 1],
    "task": ["a", "a", "b", "b", "c", "c"],
}
GROUPS = ["x", "x", "y", "y", "z", "z"]
TEXTS = {"prompt": list("ppqqrr"), "completion": lambda: ["0", "nul\0", "half \ud800", "<script>", "", "é" * 10**6]}


def number_of(column):
    return [None if value is None else float(value) for value in column]


def rows_of(path):
    table = pq.read_table(path)
    return table, about_of(table.schema)


def run_of(folder, steps=3, spec=SPEC, constants={"bonus": 3}, **options):  # noqa: B006
    """A run of some steps, logged; the results of the steps."""
    read = rewardspec.loads(spec, constants=constants).under("trl")
    fn = rewardspec.compile(read)
    writer, state, found = writer_of(RolloutLog(folder, **options), read, "trl", "no-such-package"), None, []
    for step in range(steps):
        state = fn.initial_state() if step == 0 else found[-1].state
        moment = {"step": step, "total_steps": 10, "seed": 5}
        found.append(fn(COLUMNS, GROUPS, **moment, state=state))
        more = {"tokens": Column("number", [1, 2, 3, 4, 5, 6]), "correct": Column("number", [9] * 6)}
        log_batch(
            writer, read, COLUMNS, found[-1], numbered(GROUPS), **moment, before=state, ids=GROUPS,
            beside=lambda more=more: Beside(TEXTS, more),
        )  # fmt: skip
    writer.flush()
    return found


def test_a_file_has_what_was_measured_and_what_was_computed(tmp_path):
    results = run_of(tmp_path / "new" / "log")
    paths = [path for _, path in files_of(tmp_path / "new" / "log")]
    assert [path.name for path in paths] == [f"step_0000000{i}.parquet" for i in range(3)]
    for step, (path, result) in enumerate(zip(paths, results, strict=True)):
        table, about = rows_of(path)
        found = table.to_pydict()
        assert found["rewardspec/step"] == [step] * 6 and found["rewardspec/rollout"] == [*range(6)]
        assert found["rewardspec/group"] == [0, 0, 1, 1, 2, 2] and found["rewardspec/group_id"] == GROUPS
        assert found["correct"] == number_of(COLUMNS["correct"]), "the spec's own column wins"
        assert found["style"] == [0.5, None, 0.1, None, 0.2, 0.4]
        assert found["called"] == [[1.0, 0.0], [], [1.0, None, 0.0], [1.0], [0.0], [1.0, 1.0]]
        assert found["source"] == COLUMNS["source"] and found["task"] == COLUMNS["task"] and found["tokens"][5] == 6
        assert found["rewardspec/advantage"] == result.nested()
        ends = [0, 2, 2, 5, 6, 7, 9]
        for name, values in result.shares.items():
            assert found[f"rewardspec/share/{name}"] == [values[a:b].tolist() for a, b in pairwise(ends)]
        assert found["rewardspec/reward/correct"] == result.rewards["correct"].tolist()
        assert found["rewardspec/reward/style"][1] is None
        assert found["rewardspec/length/turn"] == [2, 0, 3, 1, 1, 2]
        assert found["rewardspec/weight/correct"] == [1.0] * 6
        assert found["rewardspec/weight/style"] == pytest.approx([step / 10] * 2 + [6.0] * 2 + [step / 10] * 2)
        assert found["rewardspec/kept"] == [True, True, False, False, True, True]
        assert found["rewardspec/copies"] == [n for n in result.copies.tolist() for _ in range(2)]
        assert found["prompt"] == TEXTS["prompt"]
        assert found["completion"] == ["0", "nul\0", "half \\ud800", "<script>", "", "é" * 10**6]
        assert about["step"] == step and about["seed"] == 5 and about["total_steps"] == 10 and about["batch"] == 0
        assert about["schema"] == 1 and about["first_step"] == 0 and about["rollouts"] == 6 and about["groups"] == 3
        assert about["state"] == results[step - 1].state if step else about["state"] == {"level_of": [], "price": 0.25}
        assert about["state_after"] == result.state
        assert about["trainer"] == "trl" and about["trainer_version"] is None
    assert len({rows_of(path)[1]["run"] for path in paths}) == 1


def test_the_types_are_those_of_the_page(tmp_path):
    run_of(tmp_path, 1)
    schema = pq.read_schema(tmp_path / "step_00000000.parquet")
    page = (ROOT / "docs" / "rollout_log.md").read_text()
    columns = page.split("## Columns")[1].split("| kind of a column")[0]
    told = {}
    for line in columns.splitlines():
        if line.startswith("| `"):
            names, kind = line.split("|")[1:3]
            told |= {name.strip("` "): kind.strip() for name in names.split(",")}
    names = {"NAME": "correct", "LIST": "turn"}
    for name, kind in told.items():
        for word, own in names.items():
            name = name.replace(word, own)
        if name in schema.names:
            found = schema.field(name).type
            found = found.value_type if pa.types.is_list(found) else found
            assert {"large_string": "string"}.get(str(found), str(found)) == kind, name
    told_names = {name.partition("/NAME")[0].partition("/LIST")[0] for name in told}
    extra = {name for name in schema.names if name not in rewardspec.loads(SPEC).columns}
    assert {"/".join(name.split("/")[:2]) for name in extra} <= told_names
    keys = page.split("## Metadata")[1]
    assert [key for key in rows_of(tmp_path / "step_00000000.parquet")[1] if f"`{key}`" not in keys] == []
    assert schema.field("task").type == pa.string() and schema.field("called").type == pa.list_(pa.float64())


def test_the_page_computes_a_step_again_from_its_file_alone(tmp_path):
    run_of(tmp_path / "rollouts")
    page = (ROOT / "docs" / "rollout_log.md").read_text()
    code = page.rsplit("```python", 1)[1].split("```")[0]
    for step in range(3):
        own = code.replace("rollouts/step_00000300.parquet", str(tmp_path / "rollouts" / f"step_{step:08d}.parquet"))
        names = {}
        exec(own, names)
        again, logged = names["out"].nested(), names["table"]["rewardspec/advantage"].to_pylist()
        assert [len(row) for row in again] == [len(row) for row in logged]
        flat = [x for row in again for x in row]
        assert flat == pytest.approx([x for row in logged for x in row], abs=1e-6)
        assert any(flat) and names["spec"].fingerprint != names["about"]["fingerprint"], "before the dialect"
        assert names["fn"].spec.fingerprint == names["about"]["fingerprint"]


ROLLOUTS = """\
rewardspec: 1
name: of-rollouts
signals: {task: {id: true, level: group}}
components:
  correct: {values: [0, 1]}
  style: {range: [0, 1], missing: zero, weight: 2 * progress}
state:
  level_of: {init: 0.5, range: [0, 1], by: task, update: 0.5 * level_of + 0.5 * mean(correct)}
advantage: total - level_of
"""


def test_simulate_and_diff_read_a_file_with_the_runs_own_state_and_number_of_steps(tmp_path):
    results = run_of(tmp_path, spec=ROLLOUTS, constants={})
    from rewardspec.prove.diff_on_log import advantages_on
    from rewardspec.prove.replay import read_log

    spec = rewardspec.loads(ROLLOUTS).under("trl")
    for step, result in enumerate(results):
        path = tmp_path / f"step_0000000{step}.parquet"
        assert advantages_on(spec, read_log(path, spec)) == pytest.approx(result.advantages.tolist(), abs=1e-6)
    found = rewardspec.simulate(spec, rollouts=path)
    assert (found.rollouts, found.groups, found.steps) == (6, 3, 1)
    other = rewardspec.loads(ROLLOUTS.replace("total - level_of", "dr_grpo"))
    assert rewardspec.diff(spec, other, rollouts=path).logged.groups == 3


def test_a_folder_is_a_run_for_replay(tmp_path):
    from rewardspec.logs.open import open_run

    results = run_of(tmp_path, spec=ROLLOUTS, constants={})
    run = open_run([tmp_path])
    assert run.format == "rewardspec" and run.spec.text == ROLLOUTS
    for number, (step, result) in enumerate(zip(run.steps(), results, strict=True)):
        assert step.number == number and step.advantages == result.advantages.tolist()
        assert len({*step.groups}) == 3 and step.columns["correct"] == number_of(COLUMNS["correct"])
        assert step.columns["completion"][3] == "<script>"


def test_texts_by_hash_or_not_at_all(tmp_path):
    run_of(tmp_path / "hash", 1, text="hash")
    found = rows_of(tmp_path / "hash" / "step_00000000.parquet")[0].to_pydict()
    assert "prompt" not in found and "completion" not in found
    assert found["prompt_hash"] == [blake2b(p.encode(), digest_size=16).hexdigest() for p in "ppqqrr"]
    texts = TEXTS["completion"]()
    hashes = [blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() for t in texts]
    assert found["completion_hash"] == hashes
    run_of(tmp_path / "none", 1, text="none")
    assert not [
        name for name in rows_of(tmp_path / "none" / "step_00000000.parquet")[0].column_names if "p" in name[:1]
    ]


def test_conversations_are_json_and_what_is_no_data_is_named(tmp_path):
    messages = [{"role": "assistant", "content": [object(), "\udcff", {1: 2, (3,): 4}]}]
    endless = []
    endless.append(endless)
    texts = {"completion": [messages, "plain", None, [], endless, messages]}
    read = rewardspec.loads("rewardspec: 1\ncomponents: {correct: {values: [0, 1]}}\nadvantage: grpo\n")
    columns = {"correct": COLUMNS["correct"]}
    result = rewardspec.compile(read)(columns, 2)
    writer = writer_of(RolloutLog(tmp_path), read, "trl", "trl")
    moment = {"step": 1, "total_steps": None, "seed": 0, "before": None}
    log_batch(writer, read, columns, result, [0, 0, 1, 1, 2, 2], **moment, beside=lambda: Beside(texts))
    writer.flush()
    from rewardspec.logs.parts import RolloutFile

    rows = RolloutFile(tmp_path / "step_00000001.parquet").rows()
    content = ["<object>", "\udcff", {"1": 2}]
    assert [row["completion"] for row in rows] == [
        [{"role": "assistant", "content": content}], "plain", None, [], "<list>",
        [{"role": "assistant", "content": content}],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        ([1, 2.0, None], "int64", [1, 2, None]),
        (["a", "1", None], "string", ["a", "1", None]),
        ([1, "1", None], "string", [1, "1", None]),
        ([10**30, True, 2], "string", [10**30, True, 2]),
    ],
)
def test_ids_are_numbers_texts_or_json(tmp_path, values, kind, read):
    rollout_log.write_batch(tmp_path / "a.parquet", {"id": Column("id", values)}, {})
    from rewardspec.logs.parts import RolloutFile

    file = RolloutFile(tmp_path / "a.parquet")
    assert str(file.schema.field("id").type) == kind and [row["id"] for row in file.rows()] == read


AROUND: list[object] = []
AROUND.append(AROUND)


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        ([1, 2, None], "int64", [1, 2, None]),
        ([1, 2.5, float("nan")], "double", [1.0, 2.5, None]),
        ([True, None, False], "bool", [True, None, False]),
        (["a", None, "\ud800"], "string", ["a", None, "\\ud800"]),
        ([None, None], "string", [None, None]),
        (np.array([3, 4]), "int64", [3, 4]),
        ([{"a": np.array([1, 2]), "b": (np.float32(0.5),)}, None], "string", [{"a": [1, 2], "b": [0.5]}, None]),
        ([10**30, True, "1", {"a": [1]}], "string", [10**30, True, "1", {"a": [1]}]),
        ([10**400, 0.5], "string", [10**400, 0.5]),
        ([AROUND, 1], "string", ["<list>", 1]),
        ([{"a": AROUND, "b": 1}, None], "string", ["<dict>", None]),
        ([torch.empty(2, device="meta"), [torch.eye(2).to_sparse()]], "string", ["<Tensor>", ["<Tensor>"]]),
        ([datetime(2026, 1, 2, 3), Decimal("0.1")], "string", ["2026-01-02 03:00:00", "0.1"]),
    ],
)
def test_columns_of_a_data_set_keep_their_values(tmp_path, values, kind, read):
    rollout_log.write_batch(tmp_path / "a.parquet", {"kept": Column("any", values)}, {})
    from rewardspec.logs.parts import RolloutFile

    file = RolloutFile(tmp_path / "a.parquet")
    assert str(file.schema.field("kept").type) == kind and [row["kept"] for row in file.rows()] == read


def test_columns_to_keep_are_looked_up_also_inside_others():
    log = RolloutLog("log", columns=["source", "extra.level", "extra.none", "a.b", "source"])
    assert log.columns == ("source", "extra.level", "extra.none", "a.b")
    rows = {"source": ["x", "y"], "extra": [{"level": 1}, None], "a.b": [1, 2]}
    found = kept_of(log, rows.get)
    assert found == {"source": ["x", "y"], "extra.level": [1, None], "extra.none": None, "a.b": [1, 2]}
    texts = log_of({"dir": "log", "names": " source, extra.level ,"}, {"folder": "dir", "columns": "names"})
    assert texts.columns == ("source", "extra.level")


# Which files there are


def plain(folder, **options):
    return LogWriter(RolloutLog(folder, **options), {})


def steps_in(folder):
    return [path.name.removeprefix("step_0000").removesuffix(".parquet") for _, path in files_of(folder)]


def write(writer, *steps):
    for step in steps:
        if writer.wants(step):
            writer.write(step, {"a": Column("number", [float(step)])}, {})
    writer.flush()


def test_every_takes_the_first_step_of_so_many(tmp_path):
    write(plain(tmp_path / "all"), *range(3))
    assert steps_in(tmp_path / "all") == ["0000", "0001", "0002"]
    writer = plain(tmp_path, every=10)
    write(writer, 0, 1, 9, 10, 11, 33, 36, 40)
    assert steps_in(tmp_path) == ["0000", "0010", "0033", "0040"], "steps without a batch do not count"
    write(plain(tmp_path, every=10), 38, 39, 40, 50)  # resumed: of 30 to 39 there is one
    assert steps_in(tmp_path) == ["0000", "0010", "0033", "0040", "0050"]


def test_keep_removes_the_oldest_steps_and_first_those_of_a_run_that_was_cut(tmp_path):
    write(plain(tmp_path, keep=3), *range(6))
    assert steps_in(tmp_path) == ["0003", "0004", "0005"]
    write(plain(tmp_path, keep=3), 1)
    assert steps_in(tmp_path) == ["0001", "0004", "0005"]
    (tmp_path / "mine.parquet").touch()
    write(plain(tmp_path, keep=3), 2, 3, 4)
    assert steps_in(tmp_path) == ["0002", "0003", "0004"] and (tmp_path / "mine.parquet").exists()


def test_batches_of_one_step_are_files_and_a_resumed_run_overwrites_its_steps(tmp_path):
    write(plain(tmp_path, keep=2), 0, 0, 1, 1, 2, 2)
    assert steps_in(tmp_path) == ["0001", "0001_1", "0002", "0002_1"]
    before = {path.name: rows_of(path)[1]["run"] for _, path in files_of(tmp_path)}
    write(plain(tmp_path), 2, 2, 3)
    after = {path.name: rows_of(path)[1] for _, path in files_of(tmp_path)}
    assert {name for name in before if after[name]["run"] != before[name]} == {
        "step_00000002.parquet", "step_00000002_1.parquet",
    }  # fmt: skip
    assert after["step_00000002_1.parquet"]["batch"] == 1 and after["step_00000003.parquet"]["first_step"] == 2
    writer = plain(tmp_path / "again")
    write(writer, 0, 1)
    writer.begin()
    write(writer, 0, 1)
    assert steps_in(tmp_path / "again") == ["0000", "0001"]


KILLED = """
import os, signal, sys
import pyarrow.parquet as pq
from rewardspec.logs.rollout_log import LogWriter, RolloutLog
from rewardspec.logs.rollout_table import Column
assert "torch" not in sys.modules
whole = pq.write_table
def half(table, path, **options):
    whole(table, path, **options)
    if "00000002" in str(path):
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
pq.write_table = half
writer = LogWriter(RolloutLog(sys.argv[1]), {})
for step in range(9):
    writer.write(step, {"a": Column("number", [0.0] * 1000)}, {})
"""


def test_a_kill_in_the_middle_leaves_complete_files(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step_00000000.parquet", "step_00000001.parquet", "step_00000002.parquet.writing",
    ]  # fmt: skip
    for _, path in files_of(tmp_path):
        assert pq.read_table(path).num_rows == 1000
    write(plain(tmp_path), 2)
    assert steps_in(tmp_path) == ["0000", "0001", "0002"] and not [*tmp_path.glob("*.writing")]


# What goes wrong


def test_a_full_disk_is_a_warning_each_time_and_training_goes_on(tmp_path, monkeypatch, caplog):
    def full(table, path, **options):
        path.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    writer = plain(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", full)
        write(writer, 1, 2)
    assert not [*tmp_path.iterdir()], "what was half written does not keep the disk full"
    said = [record.message for record in caplog.records]
    assert len(said) == 2 and all(record.levelno == logging.WARNING for record in caplog.records)
    assert said[0].startswith(f"rewardspec: step 1 is not in the rollout log {tmp_path}; training goes on: OSError: ")
    assert "No space left on device" in said[0]
    write(writer, 3)
    assert "written again, after 2 batches without it" in caplog.records[-1].message and steps_in(tmp_path) == ["0003"]


def test_the_next_batch_waits_for_the_one_before(tmp_path, monkeypatch):
    order, whole = [], pq.write_table

    def noted(table, path, **options):
        order.append("begins")
        whole(table, path, **options)
        order.append("ends")

    monkeypatch.setattr(pq, "write_table", noted)
    write(plain(tmp_path), *range(5))
    assert order == ["begins", "ends"] * 5


def test_a_batch_that_cannot_be_taken_is_a_warning(tmp_path, caplog):
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {correct: {values: [0, 1]}}\nadvantage: grpo\n")
    result = rewardspec.compile(spec)({"correct": [1, 0]}, 2)
    writer = writer_of(RolloutLog(tmp_path), spec, "trl", "trl")
    moment = {"step": 7, "total_steps": None, "seed": 0, "before": None}
    log_batch(writer, spec, {"unknown": [1, 0]}, result, [0, 0], **moment)
    assert "step 7 is not in the rollout log" in caplog.text and "KeyError" in caplog.text
    log_batch(
        writer, spec, {"correct": [1, 0]}, result, [0, 0], **moment, beside=lambda: Beside({"prompt": lambda: 1 / 0})
    )
    writer.flush()
    assert "ZeroDivisionError" in caplog.text and not steps_in(tmp_path)


def test_settings_are_refused_all_at_once():
    with pytest.raises(ValueError) as error:
        RolloutLog("", every=0, keep=True, text="some", columns=["a", "prompt", "rewardspec/step"])
    said = str(error.value).splitlines()
    assert "has `prompt`: `text` decides" in said[4] and "has `rewardspec/step`: `rewardspec/` is for" in said[5]
    for columns in ("source", None, 3, ["a", ""], [None]):
        with pytest.raises(ValueError, match=r"`columns` of the rollout log is .*: it must be a list of names"):
            RolloutLog("a", columns=columns)
    assert len(said) == 6 and "`every` of the rollout log is 0" in said[1] and "full, hash, none" in said[3]


def test_a_folder_that_cannot_be_written_into_and_a_missing_package_end_the_run_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {correct: {values: [0, 1]}}\nadvantage: grpo\n")
    with pytest.raises(BindingError, match=r"the rollout log .*file/log: .*Not a directory"):
        writer_of(RolloutLog(tmp_path / "file" / "log"), spec, "trl", "trl")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BindingError, match=r"needs pyarrow: pip install 'rewardspec\[logs\]'"):
        writer_of(RolloutLog(tmp_path), spec, "trl", "trl")


def test_other_files_are_none_of_a_rollout_log(tmp_path):
    for metadata in (None, {b"rewardspec": b"{"}, {b"rewardspec": json.dumps([1]).encode()}):
        assert about_of(pa.schema([pa.field("a", pa.int64())], metadata=metadata)) is None
