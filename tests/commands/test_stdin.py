"""`-` is a spec that is read from standard input, in every command that reads one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rewardspec.cli import app

GOOD = """rewardspec: 1
name: two-rewards
components:
  correct: {values: [0, 1]}
  form: {values: [0, 1], weight: 0.5}
advantage: gdpo
guarantees:
  right_first: right_above_wrong(correct >= 1)
"""
BAD = "rewardspec: 1\ncomponents: {correct: {values: [0, 1]}}\nadvantage: gdop\n"
TOKENS = """rewardspec: 1
components: {correct: {values: [0, 1]}}
advantage: grpo
condition:
  tokens: {good: <good>, bad: <bad>}
  prior: {good: 0.5}
  label: {good: correct >= 1}
  template: "{token} {prompt}"
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, given=GOOD):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=given)


def test_check_reads_standard_input_and_calls_it_stdin(home):
    assert "1 spec checked: 0 errors" in run("check", "-").output
    done = run("check", "-", given=BAD)
    assert done.exit_code == 1
    assert "--> <stdin>:3:12" in done.output
    found = json.loads(run("check", "-", "--format", "json", given=BAD).output)
    assert found[0]["file"] == "<stdin>"


def test_check_refuses_bytes_that_are_no_text(home):
    done = CliRunner().invoke(app, ["check", "-"], input=b"rewardspec: 1\nname: \xff\n")
    assert done.exit_code == 1
    assert "<stdin>:2:7" in done.output
    assert "not UTF-8" in done.output


def test_compile_reads_standard_input(home):
    Path("spec.yaml").write_text(GOOD)
    assert run("compile", "-").output == run("compile", "spec.yaml").output
    assert run("compile", "-", "-o", "module.py").exit_code == 0
    assert Path("module.py").read_text() == run("compile", "-").output
    assert run("compile", "-", "--target", "verl", "-o", "verl").exit_code == 0
    assert Path("verl/spec.yaml").read_text() == GOOD


def test_explain_reads_standard_input(home):
    assert "two-rewards" in run("explain", "-").output


def test_simulate_reads_standard_input(home):
    assert "two-rewards" in run("simulate", "-", "-g", "2").output
    found = json.loads(run("simulate", "-", "-g", "2", "--format", "json").output)
    assert found["rows"][0]["file"] == "<stdin>"


def test_verify_reads_standard_input(home):
    found = json.loads(run("verify", "-", "-g", "2", "--format", "json").output)
    assert [row["file"] for row in found["rows"]] == ["<stdin>"]


@pytest.mark.parametrize("first", [True, False])
def test_diff_reads_standard_input(home, first):
    Path("other.yaml").write_text(GOOD.replace("gdpo", "grpo"))
    done = run("diff", *(("-", "other.yaml") if first else ("other.yaml", "-")))
    assert done.exit_code == 1
    assert "gdpo" in done.output


def test_fmt_writes_what_it_reads_to_standard_output(home):
    messy = GOOD.replace("[0, 1]", "[0,   1]")
    assert run("fmt", "-", given=messy).output == GOOD
    assert run("fmt", "-").output == GOOD
    done = run("fmt", "-", "--check", given=messy)
    assert (done.exit_code, done.output) == (1, "would format <stdin>\n")
    assert run("fmt", "-", "--check").exit_code == 0
    done = run("fmt", "-", given="a: [")
    assert done.exit_code == 1
    assert "<stdin>:1:" in done.output


def test_score_reads_standard_input(home):
    rows = [{"prompt": "p", "completion": "<think> a </think>", "correct": 1}] * 2
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = "rewardspec: 1\ncomponents: {own: {use: think.format}, correct: {values: [0, 1]}}\nadvantage: grpo\n"
    done = run("score", "-", "rows.jsonl", "-o", "out.jsonl", given=spec)
    assert done.exit_code == 0, done.output
    assert "scored/own" in Path("out.jsonl").read_text()


def test_label_reads_standard_input(home):
    row = {"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "c"}], "correct": 1}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    done = run("label", "rows.jsonl", "-", "-o", "out.jsonl", given=TOKENS)
    assert done.exit_code == 0, done.output
    assert "<good>" in Path("out.jsonl").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "-", "-"),
        ("simulate", "-", "-"),
        ("verify", "-", "-"),
        ("fmt", "-", "-"),
        ("diff", "-", "-"),
    ],
)
def test_standard_input_is_read_once(home, arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "can be read only once" in done.output


def test_a_file_that_is_called_so_is_named_by_its_folder(home):
    (home / "-").write_text(BAD)
    assert run("check", "-").exit_code == 0
    assert run("check", home / "-").exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("module", ["rewardspec", "rewardspec.cli"])
def test_package_runs_as_the_command(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "check", "-"], input=GOOD, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1 spec checked" in done.stdout
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: rewardspec" in done.stdout
