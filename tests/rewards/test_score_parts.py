"""`rewardspec score` reads files part by part: whatever a part ends in, the rows are what they are in one piece."""

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import rewardspec
from rewardspec.function import AdvantageFunction
from rewardspec.logs.parts import RolloutFile
from rewardspec.logs.rows import BadLog
from rewardspec.prove.replay import read_log
from rewardspec.scoring import advantages, packed, processes, scorer
from rewardspec.scoring import score as scoring
from rewardspec.scoring.table import Table

SPEC = """
rewardspec: 1
name: right
signals: {tokens: {range: [0, .inf]}}
components:
  answer: {use: qa.exact_match, with: {tag: none, answer: gold}}
  brief: tokens <= 4
advantage: grpo
"""
ROWS = [
    {"group": f"g{i // 4}", "completion": c, "gold": "a", "tokens": (i * 7) % 9} for i, c in enumerate("abababba" * 4)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scorer, "CHUNK", 5)  # parts of groups
    Path("spec.yaml").write_text(SPEC)
    return tmp_path


def lines(rows, path="rows.jsonl"):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def scored(output="out.jsonl", source="rows.jsonl", spec=None, **options):
    summary = rewardspec.score(spec or "spec.yaml", source, output, **options)
    return summary, RolloutFile(Path(output)).rows() if summary.scored else []


def expected(rows, advantage="grpo"):
    """The advantages of one call with all rows."""
    columns = {"answer": [float(r["completion"] == "a") for r in rows], "tokens": [r["tokens"] for r in rows]}
    columns = {name: np.array(values, float) for name, values in columns.items()}
    fn = rewardspec.compile(rewardspec.load("spec.yaml", advantage=advantage))
    return fn(columns, [r["group"] for r in rows]).nested()


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("advantage", ["grpo", "whiten(total)", "total - quantile(total, 0.7, over=batch)"])
@pytest.mark.parametrize("largest", [6, 1 << 20])
def test_groups_are_whole_wherever_their_rows_are(folder, monkeypatch, order, advantage, largest):
    monkeypatch.setattr(advantages, "AT_ONCE", 6)
    monkeypatch.setattr(advantages, "LARGEST_BATCH", largest)
    rows = ROWS if order == "sorted" else random.Random(1).sample(ROWS, len(ROWS))
    lines(rows)
    summary, found = scored(spec=rewardspec.load("spec.yaml", advantage=advantage))
    assert [{k: v for k, v in row.items() if not k.startswith("scored/")} for row in found] == rows
    assert [row["scored/advantage"] for row in found] == pytest.approx(expected(rows, advantage), abs=1e-9)
    assert summary.groups == 8 and summary.mean == {"answer": 0.5}


def test_one_row_that_is_refused_takes_no_other_with_it(folder, monkeypatch):
    monkeypatch.setattr(advantages, "AT_ONCE", 6)
    rows = [{**row, "tokens": -1} if i in (3, 17, 18) else row for i, row in enumerate(ROWS)]
    lines(rows)
    summary, found = scored()
    assert [number for number, _ in summary.bad] == [4, 18, 19]
    assert {reason for _, reason in summary.bad} == {"column `tokens` is -1: it should be from 0 to inf"}
    assert [row["scored/advantage"] for row in found] == pytest.approx(expected([r for r in rows if r["tokens"] >= 0]))


def test_a_step_that_only_later_rows_have_is_a_step(folder):
    """As where the whole file is read before: rows without it are bad."""
    lines([{**row, "step": 1} if i > 20 else row for i, row in enumerate(ROWS)])
    summary, found = scored()
    assert len(found) == 11 and summary.bad[0] == (1, "`step` is missing, so its batch is not known")


def test_a_group_that_only_later_rows_name_is_found(folder):
    lines([{**row, "rewardspec/group": 1} if i > 20 else row for i, row in enumerate(ROWS)])
    assert len(scored()[1]) == 11
    lines([{k: v for k, v in row.items() if k != "group" or i > 20} for i, row in enumerate(ROWS)])
    assert len(scored()[1]) == 11


def test_a_name_that_would_be_overwritten_in_a_later_row_is_refused(folder):
    lines([{**row, "scored/answer": 1} if i == 30 else row for i, row in enumerate(ROWS)])
    with pytest.raises(BadLog, match="already has `scored/answer`"):
        scored()
    assert not Path("out.jsonl").exists()


def test_a_resumed_run_has_the_names_of_the_whole_file(folder, monkeypatch):
    lines([{**row, "scored/tokens": row["tokens"]} if i > 9 else row for i, row in enumerate(ROWS)])
    with monkeypatch.context() as patched:
        patched.setattr(scoring, "advantages", stops)
        with pytest.raises(KeyboardInterrupt):
            scored()
    assert scored()[0].resumed == 32  # also those that the spec refuses


def stops(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5],
        [2**53 + 1, 2.5],
        [1, "x"],
        [None, [1]],
        [[], [1.5]],
        [[1], [2.5, None]],
        [{"a": 1}, {"a": 1.5}],
        [{"a": 1}, {"b": 1}],
        [{"a": []}, {"a": [{"b": None}]}],
        [True, 1],
        [2**80, 1],
        [{}, None],
    ],
    ids=repr,
)
def test_a_column_of_unlike_parts_comes_back_from_parquet(folder, values):
    rows = [{**row, "more": values[i > 15]} for i, row in enumerate(ROWS)]
    lines(rows)
    _, found = scored("out.parquet")
    assert [row["more"] for row in found] == [row["more"] for row in rows]


def test_a_file_that_changes_while_it_is_read_is_not_mixed(folder, monkeypatch):
    lines(ROWS)
    computed = scoring.advantages

    def changed(*given):
        lines([*ROWS, *ROWS])
        return computed(*given)

    monkeypatch.setattr(scoring, "advantages", changed)
    with pytest.raises(BadLog, match="was changed while it was read"):
        scored()
    assert {path.name for path in folder.iterdir()} == {"spec.yaml", "rows.jsonl", "out.jsonl.partial"}


def test_a_pipe_is_read_once(folder):
    lines(ROWS)
    scored()
    os.mkfifo("pipe")
    data = Path("rows.jsonl").read_bytes()
    log = rewardspec.loads("rewardspec: 1\ncomponents: {tokens: {range: [0, .inf]}}\nadvantage: grpo\n")
    for read in (lambda: scored("piped.jsonl", "pipe"), lambda: read_log(Path("pipe"), log)):
        thread = threading.Thread(target=Path("pipe").write_bytes, args=(data,))
        thread.start()
        read()
        thread.join()
    assert Path("piped.jsonl").read_bytes() == Path("out.jsonl").read_bytes()
    assert not list(folder.glob(".rewardspec-*"))


def test_values_come_back_from_a_packed_column():
    for values, listed in (
        ([1, None, True, 2.5], False),
        ([2**53 + 1, 1], False),
        (["a", None, 3], False),
        ([[1.0, None], [], None, [2.5]], True),
        ([["a"], []], True),
    ):
        column = packed.join([packed.pack(values[:1], listed), packed.pack(values[1:], listed)])
        assert packed.plain(column, 0, len(values)) == values
        assert packed.plain(column, 1, len(values)) == values[1:]
        rows = [i for i, value in enumerate(values) if value is not None][::-1]
        for taken, i in zip(packed.plain(packed.taken(column, np.array(rows)), 0, len(rows)), rows, strict=True):
            assert str(taken).replace("nan", "None") == str(values[i]) or taken == values[i]


@pytest.mark.slow
def test_several_processes_write_what_one_does(folder):
    rows = [dict(row) for row in ROWS * 20]
    rows[7]["gold"] = 3.5
    rows[11]["completion"] = None
    for i, row in enumerate(rows):
        row["n"] = i
    lines(rows)
    assert processes.best_processes(rewardspec.rewards.Scorer(rewardspec.load("spec.yaml")), len(rows)) == 1
    for suffix in ("jsonl", "parquet"):
        one, several = scored(f"one.{suffix}", processes=1), scored(f"several.{suffix}", processes=2)
        assert one[1] == several[1]
        assert Path(f"one.{suffix}.bad.jsonl").read_bytes() == Path(f"several.{suffix}.bad.jsonl").read_bytes()
    assert Path("one.jsonl").read_bytes() == Path("several.jsonl").read_bytes()


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing(folder, monkeypatch):
    lines([{**row, "n": i} for i, row in enumerate(ROWS * 40)])
    made, killed = [], []
    started = processes._Process._started

    def noted(self):
        made.append(started(self))
        return made[-1]

    def kill(done, of):
        if done > 300 and not killed:
            killed.append(made[0])
            made[0].kill()

    monkeypatch.setattr(processes._Process, "_started", noted)
    _, found = scored(processes=2, progress=kill)
    assert killed and len(made) == 3 and [row["n"] for row in found] == list(range(len(ROWS) * 40))
    assert all(process.poll() is not None for process in made)


def test_a_spec_without_a_text_is_measured_in_this_process(folder, monkeypatch):
    monkeypatch.setattr(processes, "_Pool", None)
    lines(ROWS)
    varied = rewardspec.load("spec.yaml").varied(eps=0)
    assert len(scored(spec=varied, processes=2)[1]) == len(ROWS)


def test_functions_of_the_user_stay_in_one_process():
    def best(component):
        spec = rewardspec.loads(f"rewardspec: 1\ncomponents: {{a: {component}}}\nadvantage: grpo\n")
        return processes.best_processes(rewardspec.rewards.Scorer(spec, allow_python=True), 10**6)

    assert best("{use: toolrl.format}") == processes.cores()
    assert best("{use: math.correct}") == best('{python: "math:sqrt", range: [0, 9]}') == 1


MEASURE = """
import json, resource, sys
from pathlib import Path
import rewardspec

count, text = int(sys.argv[1]), "word " * 400
with open("big.jsonl", "w") as out:
    for i in range(count):
        row = {"group": i * 7919 % count // 8, "completion": f"{i % 2} {text}", "gold": "1", "tokens": i % 9}
        out.write(json.dumps(row) + "\\n")
rewardspec.score("spec.yaml", "big.jsonl", "big.out.jsonl", processes=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_texts(folder):
    """50,000 more rows of 2 KB in any order, 100 MB of texts, take a fifth of that at most."""

    def most(count):
        environment = {**os.environ, "PYTHONPATH": str(Path(rewardspec.__file__).parents[1])}
        command = [sys.executable, "-c", MEASURE, str(count)]
        return int(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)

    assert most(60_000) - most(10_000) < 20


@pytest.mark.parametrize("advantage", ["grpo", "center(right) / (1 + std(right, over=batch))"])
def test_refused_rows_are_found_among_many_in_few_calls(monkeypatch, advantage):
    """Also where the advantage reads the batch: some two calls for each halving, for each of them."""
    spec = rewardspec.loads(f"rewardspec: 1\ncomponents:\n  right: {{range: [0, 1]}}\nadvantage: {advantage}\n")
    count, wrong = 4096, [7, 8, 3000]
    values = np.linspace(0, 1, count)
    values[wrong] = 5
    good, calls = np.ones(count, np.bool_), []
    table = Table(good, {}, np.arange(count) // 8, list(range(count // 8)), np.full(count, -1), {"right": values})
    called = AdvantageFunction.__call__
    monkeypatch.setattr(AdvantageFunction, "__call__", lambda *a, **k: calls.append(1) or called(*a, **k))
    found = advantages.advantages(spec, table, None)
    assert table.bad == dict.fromkeys(wrong, "column `right` is 5: it should be from 0 to 1")
    assert len(calls) < 3 * 2 * (12 + 1)
    rest = np.setdiff1d(np.arange(count), wrong)
    expected = rewardspec.compile(spec)({"right": values[rest]}, rest // 8).advantages.numpy()
    np.testing.assert_allclose(found[rest], expected, rtol=1e-9)
