"""A log that grows: each step once, as soon as it is complete."""

import json
from itertools import pairwise
from random import Random

import pandas
import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.logs import records
from rewardspec.logs.open import open_files
from rewardspec.logs.rows import BadLog
from rewardspec.runs.replay import Replaying, replay
from rewardspec.runs.watch import Growing

SPEC = """\
rewardspec: 1
name: one
components: {correct: {values: [0, 1]}, tidy: {values: [0, 1]}}
outcome: correct >= 1
advantage: decoupled
"""
PROGRESS = SPEC.replace("tidy: {values: [0, 1]}", "tidy: {values: [0, 1], weight: 1 - progress / 2}")


def lines(step, correct=(1, 0, 0, 1)):
    rows = [{"step": step, "group": f"{step}/{i // 2}", "correct": c, "tidy": 0} for i, c in enumerate(correct)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def opener(paths, since):
    return open_files(paths, format="table", columns={"group": "group"}, since=since)


def watched(paths, acts, idle=5.0, opener=opener):
    """The numbers of the steps that are seen at each look, while `acts` happen between the looks."""
    seen, looks = [], []

    def wait(seconds):
        looks.append(seen[:])
        seen.clear()
        if acts:
            acts.pop(0)()

    for _, step in Growing(paths, opener, every=1.0, idle=idle, wait=wait):
        seen.append((step.number, len(step)))
    return [*looks, seen[:]]


def append(log, text):
    def act():
        with log.open("a") as file:
            file.write(text)

    return act


def write(path, text):
    return lambda: path.write_text(text)


def test_a_file_that_grows(tmp_path):
    log = tmp_path / "log.jsonl"
    whole = lines(3)
    parts = lines(1), lines(2), whole[:70], whole[70:], lines(4)
    looks = watched([log], [append(log, part) for part in parts])
    assert [step for look in looks for step in look] == [(n, 4) for n in (1, 2, 3, 4)]
    assert looks[2] == [(1, 4)]  # complete as the second is there


def test_a_file_a_step(tmp_path):
    reads = []
    acts = [write(tmp_path / f"{n:03}.jsonl", lines(n)) for n in (1, 2, 3)]
    acts.append(write(tmp_path / "002.jsonl", lines(2, (1, 1))))  # a step that was written again is given once

    def counted(paths, since):
        reads.append(len(paths))
        return opener(paths, since)

    def wait(seconds):
        if acts:
            acts.pop(0)()

    grown = Growing([tmp_path], counted, every=1.0, idle=3.0, wait=wait)
    assert [step.number for _, step in grown] == [1, 2, 3]
    assert max(reads) == 2  # what was read is not opened again
    (note,) = grown.notes()
    assert "written again, and are not counted: 2; `rewardspec replay` counts them" in note


def assert_equal_to_replay(paths, acts, opener):
    """What is seen of a log while `acts` happen, and the replay of the log after them."""
    spec = rewardspec.loads(SPEC)
    under = Replaying([spec])
    for _, step in Growing(paths, opener, idle=20.0, wait=lambda _: acts.pop(0)() if acts else None):
        under.add(step)
    whole = replay(opener(paths, {}).run(), [spec])
    assert not acts and under.found(whole.run).to_json() == whole.to_json()
    return whole


def test_lines_that_come_in_pieces_give_the_replay_of_the_finished_log(tmp_path):
    draw, log = Random(0), tmp_path / "log.jsonl"
    text = "".join(lines(n, [draw.randint(0, 1) for _ in range(2 * draw.randint(1, 6))]) for n in range(40))
    cuts = sorted(draw.randrange(len(text)) for _ in range(60))
    found = assert_equal_to_replay([log], [append(log, text[a:b]) for a, b in pairwise([0, *cuts, len(text)])], opener)
    assert len(found.specs[0].steps) == 40


def test_batches_that_trl_logs_again_are_seen_once(tmp_path):
    acts = []
    for n in range(12):  # three steps train on each batch, and each of them logs it
        rollouts = {"completion": [*"abcd"], "correct": [1, 0, 0, n // 3 % 2], "tidy": [0, 1, 0, 1]}
        table = pandas.DataFrame({"step": n, "prompt": f"{n // 3}", **rollouts, "advantage": 0.5})
        acts.append(lambda table=table, n=n: table.to_parquet(tmp_path / f"completions_{n:05}.parquet"))
        acts += [lambda: None] * (n % 4)
    found = assert_equal_to_replay([tmp_path], acts, lambda paths, since: open_files(paths, since=since))
    assert [step.step for step in found.specs[0].steps] == [0, 3, 6, 9]


def test_lines_are_read_once_and_the_last_step_at_each_look(tmp_path, monkeypatch):
    log, read, whole = tmp_path / "log.jsonl", [], records.row_of
    monkeypatch.setattr(records, "row_of", lambda text: read.append(text) or whole(text))
    log.write_text("".join(map(lines, range(400))))
    looks = watched([log], [append(log, lines(n)) for n in range(400, 420)], idle=2.0)
    assert [step for look in looks for step in look] == [(n, 4) for n in range(420)]
    assert len(read) < 420 * 4 + 22 * (4 + 4 + 70), "and its first rows, by which a file is known"


def test_files_that_a_run_removes_while_they_are_read_end_nothing(tmp_path):
    paths = [tmp_path / f"{n:03}.jsonl" for n in range(6)]
    for n in range(4):
        paths[n].write_text(lines(n))

    def removing(found, since):  # as a rollout log with `keep=` does, after the files were listed
        for path in paths[:2]:
            path.unlink(missing_ok=True)
        return opener(found, since)

    looks = watched([tmp_path], [write(paths[n], lines(n)) for n in (4, 5)], opener=removing)
    assert [step for look in looks for step in look] == [(n, 4) for n in range(2, 6)]


def test_lines_that_are_cut_or_replaced_are_said(tmp_path):
    log = tmp_path / "log.jsonl"
    for text, late in ((lines(1), {1}), (lines(3, (1, 1)) + lines(4), {3}), (lines(1) + lines(2) + lines(3), set())):
        log.write_text(lines(1) + lines(2) + lines(3))
        acts = [lambda: None, lambda: None, write(log, text)]
        grown = Growing([log], opener, every=1.0, idle=3.0, wait=lambda _, acts=acts: acts.pop(0)() if acts else None)
        assert [step.number for _, step in grown] == [1, 2, 3] + [4] * ("4" in text)
        assert grown.late == late


def test_a_log_that_stands_still_and_is_wrong_is_an_error(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(lines(1) + '{"step": 2, "gro')
    with pytest.raises(BadLog, match=r"log\.jsonl:5: the last line is cut short"):
        watched([log], [])


def test_a_line_that_is_written_in_parts_is_waited_for(tmp_path):
    whole = lines(1) + lines(2) + lines(3)
    for name in ("log.jsonl", "first.jsonl"):  # a writer with a buffer writes 8 KB, and the rest a step later
        log, cut = tmp_path / name, 20 if name.startswith("first") else len(lines(1)) + 70
        acts = [append(log, whole[:cut]), *[lambda: None] * 6, append(log, whole[cut:])]
        looks = watched([log], acts, idle=9.0)
        assert [step for look in looks for step in look] == [(n, 4) for n in (1, 2, 3)]


def test_a_cell_that_is_written_in_parts_is_waited_for(tmp_path):
    log, whole = tmp_path / "log.csv", "step,group,correct,tokens\n1,a,1,1234\n1,a,0,1234\n"
    for rest, tokens in (("34\n", 1234), ("", 12)):
        log.write_text(whole[:-3])
        acts = [*[lambda: None] * 6, append(log, rest)]
        grown = Growing([log], opener, idle=40.0, wait=lambda _, acts=acts: acts.pop(0)() if acts else None)
        assert [[*step.columns["tokens"]] for _, step in grown] == [[1234, tokens]]


def test_a_log_without_steps_is_refused(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(lines(1).replace('"step": 1, ', ""))
    with pytest.raises(BadLog, match="rewardspec replay"):
        watched([log], [])


def test_the_command_prints_steps_and_ends_with_the_status_of_the_audit(tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    arguments = "--spec", str(tmp_path / "spec.yaml"), "--every", "0.1", "--idle", "0.1", "--columns", "group=group"
    for name, steps, status in (("short", 2, 0), ("long", 12, 1)):
        folder = tmp_path / name
        folder.mkdir()
        for n in range(1, steps + 1):
            (folder / f"{n:03}.jsonl").write_text(lines(n))
        done = CliRunner().invoke(app, ["watch", str(folder), *arguments])
        assert done.exit_code == status, done.output
        assert done.stdout.count("step ") >= steps and "step 2: 4 rollouts, 2 groups" in done.stdout
        assert ("warning[component-dead]" in done.stdout) == bool(status)
    done = CliRunner().invoke(app, ["watch", str(tmp_path / "none"), *arguments])
    assert done.exit_code == 2 and "no step of a run was seen" in done.stderr


def test_a_schedule_over_a_run_of_unknown_length_is_not_watched(tmp_path):
    (tmp_path / "spec.yaml").write_text(PROGRESS)
    (tmp_path / "log.jsonl").write_text(lines(1) + lines(2))
    arguments = [str(tmp_path / "log.jsonl"), "--spec", str(tmp_path / "spec.yaml"), "--every", "0.1", "--idle", "0.1"]
    arguments += ["--columns", "group=group"]
    done = CliRunner().invoke(app, ["watch", *arguments])
    assert done.exit_code == 2 and "--total-steps" in done.stderr
    assert CliRunner().invoke(app, ["watch", *arguments, "--total-steps", "9"]).exit_code == 0
