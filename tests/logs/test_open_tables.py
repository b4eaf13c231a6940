"""Any table by `--columns`, and what is wrong with files."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")

from rewardspec.logs import records, steps
from rewardspec.logs.open import open_run
from rewardspec.logs.rows import BadLog

ROWS = [
    {"question": f"q{g}", "answer": f"a{i}", "iteration": s, "score": {"acc": i % 2, "style": i / 4}, "adv": i - 1.5}
    for s in (1, 2)
    for g in (0, 1)
    for i in range(4)
]
COLUMNS = {
    "prompt": "question",
    "completion": "answer",
    "step": "iteration",
    "correct": "score.acc",
    "advantage": "adv",
}


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def flat(rows):
    return [
        {**{k: v for k, v in r.items() if k != "score"}, **{f"score.{k}": v for k, v in r["score"].items()}}
        for r in rows
    ]


def csv_of(path, rows):
    import pandas

    pandas.DataFrame(flat(rows)).to_csv(path, index=False)
    return path


def saved(path, rows):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows).save_to_disk(path, num_shards=2)
    return path


def parquet(path, rows):
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=3)
    return path


WRITERS = {"r.jsonl": lines, "r.csv": csv_of, "saved": saved, "r.parquet": parquet}


@pytest.mark.parametrize("name", WRITERS)
def test_any_table_is_read_by_columns(tmp_path, name):
    path = WRITERS[name](tmp_path / name, ROWS)
    run = open_run([path], columns=COLUMNS, group_by="prompt")
    found = list(run.steps())
    assert run.format == "table"
    assert [step.number for step in found] == [1, 2]
    for step in found:
        assert step.groups == ["q0"] * 4 + ["q1"] * 4
        assert step.columns["correct"] == [0, 1, 0, 1] * 2
        assert step.columns["completion"] == ["a0", "a1", "a2", "a3"] * 2
        assert step.advantages == [-1.5, -0.5, 0.5, 1.5] * 2
    assert list(run.steps()) == found, "they can be read again"


def test_names_of_their_own_need_no_columns(tmp_path):
    rows = [{"step": 3, "group": i // 2, "prompt": "p", "rewards": {"right": i}, "advantage": None} for i in range(4)]
    (step,) = open_run([lines(tmp_path / "r.jsonl", rows)], format="table").steps()
    assert step.columns == {"group": [0, 0, 1, 1], "prompt": ["p"] * 4, "right": [0, 1, 2, 3]}
    assert step.groups == [0, 0, 1, 1]
    assert step.advantages is None


def test_shards_are_merged_by_step(tmp_path):
    for part in (0, 1):
        lines(tmp_path / f"part{part}.jsonl", [{"step": s, "group": part, "right": s} for s in (1, 2, 10)])
    run = open_run([tmp_path], format="table")
    assert [(step.number, step.groups) for step in run.steps()] == [(1, [0, 1]), (2, [0, 1]), (10, [0, 1])]


def test_a_step_that_comes_back_says_how_to_sort(tmp_path):
    path = lines(tmp_path / "r.jsonl", [{"step": s, "group": 0} for s in (1, 2, 1)])
    with pytest.raises(BadLog, match=r"r.jsonl:3: step 1 comes after step 2.*jq -cs 'sort_by\(.step\)\[\]'"):
        list(open_run([path], format="table").steps())


def test_unknown_formats_say_what_was_looked_at(tmp_path):
    path = lines(tmp_path / "r.jsonl", ROWS)
    with pytest.raises(BadLog) as error:
        open_run([path])
    told = str(error.value)
    assert "it is JSON lines with `question`, `answer`, `iteration`, `score`, `adv`" in told
    assert "--columns prompt=question" in told
    assert "verl: keys input, output, score and step (JSON lines)" in told


def test_columns_that_are_not_there_are_all_named(tmp_path):
    path = lines(tmp_path / "r.jsonl", ROWS)
    with pytest.raises(BadLog) as error:
        open_run([path], columns={"prompt": "questoin", "correct": "score.acc", "x": "score.nope"}, group_by="uid")
    told = str(error.value).splitlines()
    assert len(told) == 3
    assert "no column `questoin` (did you mean `question`?)" in told[0]
    assert "`score.nope`" in told[1] and "`uid`" in told[2]


def test_bad_rows_are_named_all_at_once(tmp_path):
    path = tmp_path / "r.jsonl"
    deep = '{"group": 0, "step": 1, "x": ' + "[" * 200 + "]" * 200 + "}"
    good = '{"group": 0, "step": 1}'
    bad = [
        "{",
        "[1]",
        '{"group": 0, "step": -1}',
        '{"group": null, "step": 1}',
        deep,
        '{"group": 0}',
        '{"a": 1, "a": 2}',
    ]
    path.write_text("\n".join([good, *bad, good, '{"group": 0, "st']), encoding="utf-8")
    with pytest.raises(BadLog) as error:
        list(open_run([path], format="table").steps())
    told = str(error.value).splitlines()
    assert len(told) == 8
    for number, (line, reason) in enumerate(
        zip(
            told,
            ["not JSON", "not a JSON object", "`step` is -1", "`group` is missing", "nested more than 100 deep",
             "has no step", "the key `a` appears twice", "the last line is cut short"],
            strict=True,
        ),
        2,
    ):  # fmt: skip
        assert f"r.jsonl:{number + (number == 9)}: {reason}" in line


def test_a_long_completion_is_read_and_an_endless_line_is_an_error(tmp_path, monkeypatch):
    path = lines(tmp_path / "r.jsonl", [{"group": 0, "completion": "x" * 2**20}])
    (step,) = open_run([path], format="table").steps()
    assert len(step.columns["completion"][0]) == 2**20
    monkeypatch.setattr(records, "LONGEST_LINE", 2**20)
    with pytest.raises(BadLog, match=r"r\.jsonl:1: the line is longer than 1 MiB"):
        open_run([path], format="table")


def test_a_table_without_steps_is_one_step_and_has_a_limit(tmp_path, monkeypatch):
    path = lines(tmp_path / "r.jsonl", [{"group": i // 2, "right": 1} for i in range(8)])
    run = open_run([path], format="table")
    (step,) = run.steps()
    assert step.number is None and len(step) == 8
    assert any(line.startswith("steps: the log has none") for line in run.lost)
    monkeypatch.setattr(steps, "LARGEST", 4)
    with pytest.raises(BadLog, match="--columns step=NAME"):
        list(run.steps())


def test_a_table_without_groups_says_how_to_name_them(tmp_path):
    path = lines(tmp_path / "r.jsonl", [{"prompt": "p", "right": 1}])
    with pytest.raises(BadLog, match="--group-by prompt"):
        open_run([path], format="table")
    with pytest.raises(BadLog, match="--group-by NAME; it has `right`"):
        open_run([lines(tmp_path / "s.jsonl", [{"right": 1}])], format="table")


def test_other_files_of_a_folder_are_said(tmp_path):
    lines(tmp_path / "metrics.jsonl", [{"step": 1, "data": {"loss": 0.5}}])
    lines(tmp_path / "1.jsonl", [{"input": "p", "output": "c", "score": 1, "step": 1, "uid": "a_0_0"}])
    run = open_run([tmp_path])
    assert run.format == "verl" and [path.name for path in run.paths] == ["1.jsonl"]
    assert any(line.startswith("files: not read") and "metrics.jsonl" in line for line in run.lost)


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "is empty"),
        (b"\x1f\x8b\x08rest", "is compressed (gzip)"),
        (b"PK\x03\x04rest", "is compressed (zip)"),
        (b"\x80\x04\x95pickle", "can run code"),
        (b"PAR1 and no more", "is not a readable Parquet file"),
        (b"\xff\xff\xff\xff\x10\0\0\0", "is not a readable Arrow file"),
        (b"a\0b", "NUL bytes"),
        (b"\n\n", "has no rollouts"),
        (b"[1, 2]\n", "not a JSON object"),
    ],
)
def test_files_that_are_no_logs_are_refused_in_words(tmp_path, content, reason):
    path = tmp_path / "file.log"
    path.write_bytes(content)
    for form in (None, "table"):
        with pytest.raises(BadLog) as error:
            open_run([path], format=form)
        assert reason in str(error.value)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("group,x\n1,2,3\n0,1\n", ":2: 3 values for 2 columns"),
        ('group,x\n0,"a\n', "not CSV"),
        ("group,group\n0,1\n", "two columns called `group`"),
        ("group,x\n0,\udcff\n", ":2: not UTF-8 text"),
    ],
)
def test_bad_csv_is_refused_in_words(tmp_path, text, reason):
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadLog) as error:
        list(open_run([path], format="table").steps())
    assert reason in str(error.value)


def test_values_of_csv_have_types(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text('group,prompt,x,y,z\n007,1,1,true,"a, ""b""\nc"\n007,2,1e-3,,nan\n', encoding="utf-8")
    (step,) = open_run([path], format="table").steps()
    assert step.columns["prompt"] == ["1", "2"]
    assert step.groups == ["007", "007"]
    assert step.columns["x"] == [1, 0.001]
    assert step.columns["y"] == [True, None]
    assert step.columns["z"] == ['a, "b"\nc', None]


def test_a_saved_data_set_cannot_name_files_elsewhere(tmp_path):
    path = saved(tmp_path / "saved", ROWS)
    state = json.loads((path / "state.json").read_text())
    state["_data_files"][0]["filename"] = "../secret.arrow"
    (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(BadLog, match="names a file in another folder"):
        open_run([path], columns=COLUMNS, group_by="prompt")


def test_several_data_sets_in_a_folder_are_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path / "saved")
    with pytest.raises(BadLog, match=r"has several data sets: name one, as .*saved/test"):
        open_run([tmp_path / "saved"], columns=COLUMNS, group_by="prompt")
    run = open_run([tmp_path / "saved" / "train"], columns=COLUMNS, group_by="prompt")
    assert [len(step) for step in run.steps()] == [8, 8]


def test_paths_that_hold_nothing_are_all_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadLog) as error:
        open_run([tmp_path / "empty", tmp_path / "none.jsonl"])
    assert len(str(error.value).splitlines()) == 2
    with pytest.raises(BadLog, match="unknown format `trll`: did you mean `trl`"):
        open_run([tmp_path], format="trll")


CUT = """
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
from rewardspec.logs.records import records
from rewardspec.logs.rows import BadLog
path, kind = Path(sys.argv[1]), sys.argv[2]
table = pa.table({"a": range(20000), "t": [f"{i} " * 60 for i in range(20000)]})
if kind == "Parquet":
    pq.write_table(table, path, row_group_size=2000, use_dictionary=False, compression=None)
else:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
rows = records(path, kind)
next(rows)
os.truncate(path, 5000)
try:
    print(sum(1 for _ in rows))
except BadLog as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["Parquet", "Arrow"])
def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_crash(tmp_path, kind):
    """Mapped into memory it would end the process (SIGBUS): trainers write some files again in place."""
    done = subprocess.run([sys.executable, "-c", CUT, str(tmp_path / "log"), kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"log is not a readable {kind} file" in done.stdout or "log was cut while it was read" in done.stdout
