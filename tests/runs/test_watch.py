"""A log that grows: each step once, as soon as it is complete."""

import json

import pytest
from typer.testing import CliRunner

from rewardspec.cli import app
from rewardspec.logs.open import open_run
from rewardspec.logs.rows import BadLog
from rewardspec.runs.watch import growing

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


def opener(paths):
    return open_run(paths, format="table", columns={"group": "group"})


def watched(paths, acts, idle=5.0):
    """The numbers of the steps that are seen at each look, while `acts` happen between the looks."""
    seen, looks = [], []

    def wait(seconds):
        looks.append(seen[:])
        seen.clear()
        if acts:
            acts.pop(0)()

    for _, step in growing(paths, opener, every=1.0, idle=idle, wait=wait):
        seen.append((step.number, len(step)))
    return [*looks, seen[:]]


def test_a_file_that_grows(tmp_path):
    log = tmp_path / "log.jsonl"

    def append(text):
        def act():
            with log.open("a") as file:
                file.write(text)

        return act

    whole = lines(3)
    acts = [append(lines(1)), append(lines(2)), append(whole[:70]), append(whole[70:]), append(lines(4))]
    looks = watched([log], acts)
    assert [step for look in looks for step in look] == [(n, 4) for n in (1, 2, 3, 4)]
    assert looks[2] == [(1, 4)]  # complete as the second is there


def test_a_file_a_step(tmp_path):
    def write(n, text=None):
        return lambda: (tmp_path / f"{n:03}.jsonl").write_text(text or lines(n))

    reads = []
    acts = [write(1), write(2), write(3), write(2)]  # a step that was written again is given once
    counted = growing([tmp_path], lambda paths: reads.append(len(paths)) or opener(paths), every=1.0, idle=3.0,
                      wait=lambda _: acts.pop(0)() if acts else None)  # fmt: skip
    assert [step.number for _, step in counted] == [1, 2, 3]
    assert max(reads) == 2  # what was read is not opened again


def test_a_log_that_stands_still_and_is_wrong_is_an_error(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(lines(1) + '{"step": 2, "gro')
    with pytest.raises(BadLog, match=r"log\.jsonl:5: the last line is cut short"):
        watched([log], [])


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
