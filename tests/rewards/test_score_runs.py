"""`rewardspec score` that is killed, started twice, or pointed at its own files: no row gets another row's reward."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.logs.outputs import BadPath, check_paths, held
from rewardspec.logs.parts import RolloutFile
from rewardspec.logs.rows import BadLog
from rewardspec.scoring.score import score

ROWS = 700
SPEC = """
rewardspec: 1
name: own
components:
  own: {python: "slow_rewards:own", range: [0, .inf]}
advantage: grpo
"""
# Each value says which row it is of; a file `slow` beside the module makes it slow enough to be killed.
MODULE = """
import time
from pathlib import Path

SLOW = Path(__file__).with_name("slow")

def own(completion):
    if SLOW.exists():
        time.sleep(0.0005)
    return float(completion.removeprefix("row "))
"""
RUN = [sys.executable, "-m", "rewardspec.cli", "score", "spec.yaml", "rows.jsonl", "-o", "out.jsonl", "--trust"]


def lines(start=0, count=ROWS):
    return [{"group": i // 4, "completion": f"row {i}", "n": i} for i in range(start, start + count)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "slow_rewards.py").write_text(MODULE)
    write(tmp_path / "rows.jsonl", lines())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_rewards", raising=False)
    return tmp_path


def run(*options):
    return subprocess.run([*RUN, *options], capture_output=True, text=True, env=environment())


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(rewardspec.__file__).parents[1])])}


def right(path="out.jsonl", count=ROWS):
    """Whether every row has its own reward."""
    rows = RolloutFile(Path(path)).rows()
    return len(rows) == count and all(row["scored/own"] == row["n"] for row in rows)


def started(*options):
    return subprocess.Popen([*RUN, *options], stderr=subprocess.PIPE, text=True, env=environment())


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def measured():
    path = Path("out.jsonl.partial")
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_a_killed_run_is_taken_up_at_its_rows(folder):
    (folder / "slow").touch()
    for more in (1, 300):  # killed early, and again further on
        process = started()
        until(lambda more=more: measured() > more)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not Path("out.jsonl").exists() and Path("out.jsonl.lock").exists()
    (folder / "slow").unlink()
    done = run()
    assert done.returncode == 0 and "resumed" in done.stderr, done.stderr
    assert right() and not list(folder.glob("*.partial*")) and not list(folder.glob("*.lock"))


@pytest.mark.slow
def test_two_runs_do_not_share_an_output(folder):
    (folder / "slow").touch()
    first = started()
    until(lambda: measured() > 1)
    second = run()
    assert second.returncode == 2 and f"another run (process {first.pid}) is writing" in second.stderr
    os.symlink("out.jsonl", "link.jsonl")
    with pytest.raises(BadPath, match="another run"), held(check_paths(Path("link.jsonl"), {})):
        pass
    _, said = first.communicate()
    assert first.returncode == 0 and right(), said


@pytest.mark.slow
def test_a_lock_ends_with_its_process(folder):
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom rewardspec.logs.outputs import held\n"
        "with held(Path('out.jsonl')):\n"
        "    if os.fork() == 0:\n        print('held', flush=True)\n        time.sleep(30)\n        os._exit(0)\n"
        "    time.sleep(30)\n"  # the child, which has let go of the lock when it says so, outlives its parent
    )
    options = {"stdout": subprocess.PIPE, "env": environment(), "process_group": 0}
    with subprocess.Popen([sys.executable, "-c", code], **options) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            with pytest.raises(BadPath, match="another run"), held(Path("out.jsonl")):
                pass
            process.kill()
            process.wait()
            with held(Path("out.jsonl")):
                pass
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the child


def scored(**options):
    return score(rewardspec.load("spec.yaml"), Path("rows.jsonl"), Path("out.jsonl"), allow_python=True, **options)


def partial(folder, monkeypatch):
    """What a run leaves that was stopped before its end, as bytes."""
    monkeypatch.setattr("rewardspec.scoring.score.advantages", stops)
    with pytest.raises(KeyboardInterrupt):
        scored()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return Path("out.jsonl.partial").read_bytes()


def stops(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_any_part_of_a_partial_file_is_enough_or_nothing(folder, monkeypatch):
    """As a kill leaves it: cut at any byte, lines in any order, twice, of another run, or no lines at all."""
    write(folder / "rows.jsonl", lines(count=40))
    whole = partial(folder, monkeypatch)
    head, *rest = whole.splitlines(keepends=True)
    draw = random.Random(0)
    kept = [whole[: draw.randrange(len(whole))] for _ in range(25)] + [b"", head, whole + rest[3]]
    strange = [b"1\n", b"null\n", b"[1]\n", b"[1, 2, 3]\n", b'[1, "x", {"own": 3}]\n', b'[1, "x", "y", 4]\n', b"\xff\n"]
    strange += [rest[2].replace(b"[3,", b"[4,"), rest[2].replace(b"2.0", b'"2"'), rest[2].replace(b"own", b"other")]
    strange += [b"[" * 100_000 + b"\n", rest[1] * 2, b'[true, "x", {"own": 3}]\n', rest[5].replace(b"5.0", b"[5]")]
    strange.append(rest[5].replace(b"5.0", b"1" + b"0" * 400))
    for _ in range(15):
        shuffled = draw.sample(rest, len(rest))
        shuffled[draw.randrange(30)] = draw.choice(strange)
        kept.append(head + b"".join(shuffled[: draw.randrange(30, 41)]))
    for data in kept:
        Path("out.jsonl.partial").write_bytes(data)
        scored()
        assert right(count=40)
        Path("out.jsonl").unlink()


@pytest.mark.parametrize("head", [b"1\n", b"null\n", b"[1]\n", b'{"rewardspec": "ab", "rows": "cd"}\n', b"\xff\xfe\n"])
def test_a_file_of_another_kind_is_not_written_over(folder, head):
    Path("out.jsonl.partial").write_bytes(head + b"1\n")
    with pytest.raises(BadLog, match=r"is not the file of an interrupted run .* --restart"):
        scored()
    assert Path("out.jsonl.partial").read_bytes() == head + b"1\n"
    scored(restart=True)
    assert right()


def test_rows_that_have_changed_are_scored_again(folder, monkeypatch):
    partial(folder, monkeypatch)
    write(folder / "rows.jsonl", [*lines(5000, 10), *lines(10, ROWS)])  # ten others, and ten more
    summary = scored()
    assert (summary.resumed, summary.changed) == (ROWS - 10, 10) and right(count=ROWS + 10)
    partial(folder, monkeypatch)
    write(folder / "rows.jsonl", lines()[::-1])
    summary = scored()
    assert summary.resumed == 0 and right()


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("spec.yaml", "[0, .inf]", "[-1, .inf]", r"another spec: \w+, now \w+"),
        (
            "spec.yaml",
            "slow_rewards:own",
            "slow_rewards:other",
            "another own: slow_rewards:own .* now slow_rewards:oth",
        ),
        ("slow_rewards.py", "0.0005", "0.0006", r"another own: slow_rewards:own \["),
    ],
)
def test_another_spec_or_function_is_said_and_not_mixed(folder, monkeypatch, file, old, new, said):
    Path("slow_rewards.py").write_text(MODULE + "\ndef other(completion):\n    return own(completion)\n")
    before = partial(folder, monkeypatch)
    Path(file).write_text(Path(file).read_text().replace(old, new))
    sys.modules.pop("slow_rewards")
    with pytest.raises(BadLog, match=said):
        scored()
    assert Path("out.jsonl.partial").read_bytes() == before
    assert scored(restart=True).resumed == 0 and right()


def test_a_constant_of_only_when_is_part_of_what_a_run_is():
    text = """rewardspec: 1
define: {limit: 0.5}
signals: {b: {range: [0, 1]}}
components:
  a: {python: "m:f", range: [0, 1], with: {only_when: b >= limit}, missing: ignore}
advantage: grpo
"""
    one, other = (rewardspec.loads(text, constants={"limit": limit}).fingerprint for limit in (0.5, 0.6))
    assert one != other


# Paths


def test_paths_are_looked_at_before_anything_starts(folder):
    def refused(source, output, said, spec="spec.yaml"):
        with pytest.raises(BadPath, match=said):
            score(rewardspec.load(spec), Path(source), Path(output), allow_python=True)
        assert Path(source).read_bytes() == before and Path(spec).read_text() == SPEC

    before = Path("rows.jsonl").read_bytes()
    for name in ("x.jsonl.bad.jsonl", "x.jsonl.partial", "x.jsonl.writing", "x.jsonl.lock", "x.jsonl.partial.writing"):
        write(folder / name, lines())
        refused(name, "x.jsonl", "name another output")
        os.symlink(name, "through_link.jsonl")
        refused("through_link.jsonl", "x.jsonl", "name another output")
        Path("through_link.jsonl").unlink()
        os.link(name, "hard.jsonl")
        refused("hard.jsonl", "x.jsonl", "name another output")
        Path("hard.jsonl").unlink()
        refused("rows.jsonl", name, "use another name")
        Path(name).unlink()
    os.link("rows.jsonl", "hard.jsonl")
    os.symlink("rows.jsonl", "soft.jsonl")
    for output in ("rows.jsonl", "hard.jsonl", "soft.jsonl", "./rows.jsonl", f"../{folder.name}/rows.jsonl"):
        refused("rows.jsonl", output, "is the source and would be overwritten")
    os.link("spec.yaml", "spec.jsonl")
    refused("rows.jsonl", "spec.jsonl", "is the spec and would be overwritten")
    (folder / "dir.jsonl").mkdir()
    refused("rows.jsonl", "dir.jsonl", "is a folder: name a file in it")
    refused("rows.jsonl", "no/such.jsonl", "there is no folder")
    refused("rows.jsonl", "out.csv", "as Parquet .* or JSON lines .* not .csv")
    refused("rows.jsonl", "out.jsonl.gz", "not .gz")
    os.mkfifo("pipe.jsonl")
    refused("rows.jsonl", "pipe.jsonl", "not a regular file")
    os.symlink("elsewhere", "free.jsonl.partial")
    refused("rows.jsonl", "free.jsonl", "is not a regular file")
    assert not Path("elsewhere").exists()


def test_what_goes_wrong_with_paths_is_said_at_once(folder):
    write(folder / "x.jsonl.partial", lines())
    with pytest.raises(BadPath) as found:
        check_paths(Path("x.jsonl"), {"source": Path("x.jsonl.partial"), "spec": Path("x.jsonl")}, {".partial": "that"})
    assert len(str(found.value).splitlines()) == 2


def test_outputs_that_differ_in_their_suffix_have_files_of_their_own(folder):
    rows = lines(count=8)
    write(folder / "rows.jsonl", [*rows, {"group": 1}])
    for name in ("o.jsonl", "o.ndjson", "o.parquet"):
        score(rewardspec.load("spec.yaml"), Path("rows.jsonl"), Path(name), allow_python=True)
    assert sorted(path.name for path in folder.glob("*.bad.jsonl")) == [
        "o.jsonl.bad.jsonl",
        "o.ndjson.bad.jsonl",
        "o.parquet.bad.jsonl",
    ]


def test_an_output_that_is_a_link_stays_one(folder):
    (folder / "there").mkdir()
    os.symlink("there/real.jsonl", "out.jsonl")
    scored()
    assert Path("out.jsonl").is_symlink() and right("there/real.jsonl")
    os.chmod("there/real.jsonl", 0o600)
    scored()
    assert Path("there/real.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_label_looks_at_its_paths_as_well(folder):
    spec = rewardspec.resources.resource("specs/rc_grpo/rc_grpo.yaml")
    command = [sys.executable, "-m", "rewardspec.cli", "label"]
    for source, output in (("rows.jsonl", "rows.jsonl"), ("x.jsonl.writing", "x.jsonl")):
        write(folder / source, lines())
        done = subprocess.run([*command, source, spec, "-o", output], capture_output=True, text=True, env=environment())
        assert done.returncode == 2 and ("overwritten" in done.stderr or "name another" in done.stderr)
        assert Path(source).read_text().count("\n") == ROWS


def test_compile_and_plot_do_not_write_over_a_spec(folder):
    os.link("spec.yaml", "hard.py")
    for arguments in (["compile", "spec.yaml", "-o", "hard.py"], ["simulate", "spec.yaml", "--plot", "./spec.yaml"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2 and "spec.yaml is the spec and would be overwritten" in result.output
    assert Path("spec.yaml").read_text() == SPEC
