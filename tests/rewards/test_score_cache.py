"""`rewardspec score --cache`: a changed component asks itself alone again; an answer is never another row's."""

import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.logs.outputs import BadPath
from rewardspec.logs.parts import RolloutFile
from rewardspec.scoring.component_cache import _key
from rewardspec.scoring.storage import place
from rewardspec.scoring.versions import of_function

ROWS = 300
SPEC = """
rewardspec: 1
name: cached
components:
  long: {python: "cached_rewards:long", range: [0, .inf]}
  loud: {python: "cached_rewards:loud", range: [0, .inf], missing: zero}
advantage: grpo
"""
# Every call leaves a line in a file.
MODULE = """
from pathlib import Path

LIMIT = 2

def note(name):
    with open("calls", "a") as out:
        out.write(name + "\\n")

def long(completion):
    note("long")
    return float(len(completion)) * LIMIT

def loud(completion, *, fails=()):
    note("loud")
    words = completion.split()
    if Path("down").exists() and words[1].endswith("7"):
        return None
    return float(words[1]) + 0.5
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "cached_rewards.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second would not be seen
    monkeypatch.syspath_prepend(tmp_path)
    write()
    yield tmp_path
    sys.modules.pop("cached_rewards", None)


def write(count=ROWS, **more):
    rows = [{"group": i // 4, "completion": f"row {i}", **more} for i in range(count)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def calls(**options):
    """How often each function was called by a run, and the rows that it wrote."""
    Path("calls").write_text("")
    sys.modules.pop("cached_rewards", None)
    importlib.invalidate_caches()
    options = {"cache": "kept.sqlite", "allow_python": True, **options}
    rewardspec.score("spec.yaml", "rows.jsonl", "out.jsonl", **options)
    called = Path("calls").read_text().split()
    for i, row in enumerate(rows := RolloutFile(Path("out.jsonl")).rows()):
        assert row["scored/loud"] in (i + 0.5, None) and row["completion"] == f"row {i}"
    return {name: called.count(name) for name in ("long", "loud")}, rows


def change(old, new, path="cached_rewards.py"):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def test_a_second_run_asks_nothing(folder):
    first, before = calls()
    assert first == {"long": ROWS, "loud": ROWS}
    again, after = calls()
    assert again == {"long": 0, "loud": 0} and after == before
    change("range: [0, .inf]}", "range: [0, .inf], weight: 2}", "spec.yaml")
    change("advantage: grpo", "advantage: gdpo", "spec.yaml")
    change("  loud:", "  shout:", "spec.yaml")
    Path("calls").write_text("")
    rewardspec.score("spec.yaml", "rows.jsonl", "out.jsonl", cache="kept.sqlite", allow_python=True)
    assert not Path("calls").read_text()  # another weight, advantage and name ask nothing
    write(more="a column")
    change("  shout:", "  loud:", "spec.yaml")
    assert calls()[0] == {"long": 0, "loud": 0}
    write(ROWS + 7)
    assert calls()[0] == {"long": 7, "loud": 7}


def test_an_edited_function_is_asked_again_alone(folder):
    calls()
    change("words[1]) + 0.5", "words[1]) + 0.5  # the same")
    assert calls()[0] == {"long": 0, "loud": ROWS}
    change("LIMIT = 2", "LIMIT = 3")  # which `long` reads
    found, rows = calls()
    assert found == {"long": ROWS, "loud": 0} and rows[0]["scored/long"] == 15
    change("out.write(name", "out.write(str(name)")  # both read `note`
    assert calls()[0] == {"long": ROWS, "loud": ROWS}
    Path("cached_rewards.py").write_text(Path("cached_rewards.py").read_text() + "\nlong.version = loud.version = 1\n")
    calls()
    change("LIMIT = 3", "LIMIT = 4")
    found, rows = calls()
    assert found == {"long": 0, "loud": 0} and rows[0]["scored/long"] == 15  # as its version says


def test_only_failed_asks_where_there_was_no_answer(folder):
    Path("down").touch()
    found, rows = calls()
    assert sum(row["scored/loud"] is None for row in rows) == 30
    Path("down").unlink()
    assert calls()[0] == {"long": 0, "loud": 0}  # None is kept, too
    found, rows = calls(only_failed=True)
    assert found == {"long": 0, "loud": 30} and all(row["scored/loud"] is not None for row in rows)
    assert calls(only_failed=True)[0] == {"long": 0, "loud": 0}
    with pytest.raises(BadPath, match="is known from a cache"):
        calls(cache=None, only_failed=True)


def test_the_command_says_what_was_kept(folder):
    for says in ("0 values were kept, 600 were asked for", "600 values were kept, 0 were asked for"):
        command = ["score", "spec.yaml", "rows.jsonl", "-o", "out.jsonl", "--trust", "--cache", "kept.sqlite"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0 and f"cache: {says}" in result.output, result.output


@pytest.mark.parametrize("damage", [b"", b"no database" * 99, None])
def test_a_cache_that_cannot_be_used_costs_a_warning(folder, caplog, damage):
    calls()
    if damage is None:
        Path("kept.sqlite").unlink()
        Path("kept.sqlite").mkdir()
    else:
        Path("kept.sqlite").write_bytes(damage)
    found, _ = calls()
    assert found == {"long": ROWS, "loud": ROWS}
    assert len(caplog.records) == (0 if damage == b"" else 1)
    said = "the cache of what reward functions said cannot be used: kept.sqlite"
    assert damage == b"" or said in caplog.text


@pytest.mark.parametrize("text", ["", "x", "true", '"1"', "[[1.0]]", "[1.0]", "1", "{}", "[" * 20_000])
def test_kept_texts_that_are_no_values_are_asked_again(folder, text):
    calls()
    with sqlite3.connect("kept.sqlite") as file:
        file.execute("UPDATE answers SET answer = ?", (text,))
    file.close()
    assert calls()[0] == {"long": ROWS, "loud": ROWS}


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_what_it_asked(folder):
    write(3000)
    command = [sys.executable, "-m", "rewardspec.cli", "score", "spec.yaml", "rows.jsonl", "-o", "out.jsonl"]
    command += ["--trust", "--cache", "kept.sqlite"]
    environment = {**os.environ, "PYTHONPATH": str(Path(rewardspec.__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while process.poll() is None and not (Path("calls").exists() and Path("calls").stat().st_size > 4000):
        assert time.monotonic() < end
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    Path("out.jsonl.partial").unlink(missing_ok=True)
    found, rows = calls()
    assert 0 < found["long"] < 3000 and len(rows) == 3000


def test_a_folder_of_many_writers_is_read_as_one(folder, caplog):
    """A value wins over none, whichever was written first; a damaged file costs a warning and what was in it."""
    pytest.importorskip("pyarrow")
    from rewardspec.scoring.cache_folder import CacheFolder, InFolder, files_of, folder_of, joined, read_files

    keys = [f"{i:032x}" for i in (5, 3, 4, 1 << 120)]
    for texts in ({keys[0]: "1.0", keys[1]: "null"}, {keys[1]: "2.5", keys[2]: "[1.0, null]"}, {keys[2]: "[1.0, 0.0]"}):
        one = InFolder(CacheFolder("kept", False, {}))
        assert one.keep("v", texts) and one.recall("v", keys) == texts
        assert one.flush() and one.flush()
    names = files_of("kept", "v")
    assert len(names) == 3 and files_of("kept", "w") == []
    for order in (names, names[::-1]):
        table = joined(read_files("kept", "v", order[:1]), read_files("kept", "v", order[1:]))
        found = {key.hex(): value for key, value in zip(*table.to_pydict().values(), strict=True)}
        assert found == {keys[0]: "1.0", keys[1]: "2.5", keys[2]: "[1.0, 0.0]"}
    assert not caplog.records
    Path("kept", folder_of("v"), names[0]).write_bytes(b"PAR1, but no more than that")
    assert len(read_files("kept", "v", names)) in (3, 4)  # of five, as one file had one or two
    assert "the cache of what reward functions said cannot be used: " in caplog.text


def test_versions_follow_what_a_function_names(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def version(text, name="f"):
        (tmp_path / "named.py").write_text(text)
        sys.modules.pop("named", None)
        importlib.invalidate_caches()
        return of_function(getattr(importlib.import_module("named"), name))

    text = "import math\nA = 1\ndef g(x):\n    return A\ndef f(x):\n    return g(x) + math.pi\n"
    first = version(text)
    assert version(text + "\ndef other(x):\n    return 2\n") == first
    assert version(text.replace("A = 1", "A = 2")) != first
    assert version(text.replace("return A", "return -A")) != first
    table = text.replace("A = 1", "A = {1: 2}")  # no constant: then the whole file counts
    assert version(table) != version(table + "\ndef other(x):\n    return 2\n")
    default = "A = 1\ndef f(x, n=A, *, m=(A, [2])):\n    return n\n"  # the source names it alone
    assert version(default) != version(default.replace("A = 1", "A = 2"))
    lambdas = "a = lambda x: 1\nb = lambda x: 2\ndef f(x):\n    return a(x) + b(x)\n"
    assert version(lambdas) != version(lambdas.replace("x: 1", "x: 3"))
    old, words = "def f(x):\n    return x in {'a', 'b'} and any(y for y in x)\n", ("'a'", "y in x")
    assert version(old) == version("import math\n\n\n" + old)
    for word in words:  # what was imported is what answers, not what its file says by now
        first, imported = version(old), sys.modules["named"].f
        (tmp_path / "named.py").write_text(new := old.replace(word, word.replace("a", "c").replace("in x", "in [x]")))
        assert of_function(imported) not in (first, version(new))
    assert version("def f(x):\n    return x and g(x[1:])\ng = f\n")  # a function that names itself otherwise
    wrapped = "import functools\n@functools.cache\ndef f(x):\n    return 1\n"
    assert version(wrapped) != version(wrapped.replace("return 1", "return 2"))
    assert version(wrapped + "f.version = '7'\n") == version("def f(x):\n    return 9\nf.version = 7\n") == "version 7"
    sys.modules.pop("named", None)


def test_arrays_that_differ_in_their_last_digits_have_keys_of_their_own():
    one, other = np.array([0.12345678901]), np.array([0.12345678902])
    assert _key("v", [one]) == _key("v", [one.copy()]) != _key("v", [other])
    assert _key("v", [one]) != _key("v", [one.astype(np.float32)]) and _key("v", [{"a": one}]) is not None


def test_a_writer_that_is_killed_leaves_nothing_in_its_folder(tmp_path, monkeypatch):
    folder = place(str(tmp_path / "cluster" / "output"))
    folder.make_folder()
    (folder / "part-00000.jsonl").write(b"whole")
    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", lambda *_: pytest.exit("here it is killed"))
        with pytest.raises(pytest.exit.Exception):
            (folder / "part-00001.jsonl").write(b"half")
    assert [path.name for path in (tmp_path / "cluster" / "output").iterdir()] == ["part-00000.jsonl"]
