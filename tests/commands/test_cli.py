"""The commands as a user runs them."""

import ast
import json
import re
import subprocess
import sys

import pytest
from commands_in_process import run
from places import ROOT
from ruamel.yaml import YAML

from rewardspec.resources import resource

SPECS = resource("specs/gdpo")
BROKEN = """rewardspec: 1
components:
  correct: {values: [0, 1]}
  length: {values: [0, 1], when: corect >= 1}
advantage: gdqo
"""


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    return path


@pytest.mark.slow
def test_a_process_prints_and_ends_as_in_the_tests(broken):
    for arguments, status in ((["check", SPECS / "math.yaml"], 0), (["explain", broken], 1), (["frobnicate"], 2)):
        command = [sys.executable, "-m", "rewardspec.cli", *map(str, arguments)]
        done, here = subprocess.run(command, capture_output=True, text=True), run(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (status, here.stdout, here.stderr)
        assert here.returncode == status


@pytest.mark.slow
def test_check_of_right_specs_is_clean():
    done = run("check", SPECS)
    assert done.returncode == 0
    assert f"{len([*SPECS.glob('*.yaml')])} specs checked: 0 errors" in done.stdout


@pytest.mark.slow
def test_check_takes_files_and_folders(tmp_path):
    files = [SPECS / "math.yaml", SPECS / "tool_calling.yaml"]
    for path in files:
        (tmp_path / path.name).write_text(path.read_text())
    for given in (files, [tmp_path]):
        done = run("check", *given)
        assert done.returncode == 0 and "2 specs checked: 0 errors" in done.stdout


@pytest.mark.slow
def test_check_reports_every_error_at_its_place(broken):
    done = run("check", broken)
    assert done.returncode == 1
    assert f"{broken}:4:34" in done.stdout
    assert "did you mean `correct`?" in done.stdout
    assert f"{broken}:5:12" in done.stdout
    assert "did you mean `gdpo`?" in done.stdout


@pytest.mark.slow
def test_check_as_json(broken):
    done = run("check", broken, "--format", "json")
    assert done.returncode == 1
    first = json.loads(done.stdout)[0]
    assert first == {
        "code": "unknown-name",
        "severity": "error",
        "message": "unknown name `corect`",
        "file": str(broken),
        "line": 4,
        "column": 34,
        "end_line": 4,
        "end_column": 40,
        "note": None,
        "labels": [],
        "help": "did you mean `correct`?",
    }


@pytest.mark.slow
def test_check_of_clean_specs_as_json_is_an_empty_list():
    assert json.loads(run("check", SPECS / "math_conditioned.yaml", "--format", "json").stdout) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "no-such-file.yaml"],
        ["check", SPECS / "math.yaml", "--format", "xml"],
        ["check", SPECS / "math.yaml", "--set", "limit"],
        ["simulate", SPECS / "math.yaml", "-g", "two"],
        ["simulate", SPECS / "math.yaml", "-g", "0"],
        ["compile", SPECS / "math.yaml", "-o", "/no/such/folder/x.py"],
        ["frobnicate"],
    ],
)
def test_misuse_is_exit_status_2_without_a_traceback(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr or done.stdout


@pytest.mark.slow
def test_broken_spec_ends_every_command_with_1(broken):
    for command in ("compile", "explain", "simulate"):
        done = run(command, broken)
        assert done.returncode == 1
        assert "did you mean `correct`?" in done.stderr
        assert done.stdout == ""


@pytest.mark.slow
def test_compile_prints_a_module():
    done = run("compile", SPECS / "math.yaml")
    names = {node.name for node in ast.parse(done.stdout).body if isinstance(node, ast.FunctionDef)}
    assert "advantages" in names


@pytest.mark.slow
def test_compile_writes_what_it_prints(tmp_path):
    target = tmp_path / "advantage.py"
    done = run("compile", SPECS / "math.yaml", "-o", target)
    assert done.returncode == 0
    assert target.read_text() == run("compile", SPECS / "math.yaml").stdout


@pytest.mark.slow
def test_set_changes_a_constant():
    assert "100.0" in run("compile", SPECS / "math.yaml", "--set", "limit=100").stdout
    done = run("check", SPECS / "math.yaml", "--set", "limt=100")
    assert done.returncode == 1
    assert "did you mean `limit`?" in done.stdout


@pytest.mark.slow
def test_explain_shows_expressions_levels_and_domains():
    done = run("explain", SPECS / "math_conditioned.yaml")
    assert done.returncode == 0
    for text in (
        "tokens <= limit if correct >= 1 else 0",
        "whiten(decoupled)",
        "rollout",
        "[0, inf)",
        "{0, 1}",
    ):
        assert text in done.stdout


@pytest.mark.slow
def test_simulate_as_json():
    done = run("simulate", SPECS / "math.yaml", "-g", "2,4..5", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    keys = ("spec", "group_size", "reward_groups", "advantage_groups", "exact")
    assert [tuple(row[k] for k in keys) for row in rows] == [
        ("gdpo-math", 2, 10, 3, True),
        ("gdpo-math", 4, 35, 14, True),
        ("gdpo-math", 5, 56, 26, True),
    ]


@pytest.mark.slow
def test_simulate_under_other_schemes():
    done = run("simulate", SPECS / "math.yaml", "-g", "8", "--advantage", "grpo", "--advantage", "gdpo")
    assert done.returncode == 0
    assert "29" in done.stdout
    assert "81" in done.stdout


@pytest.mark.slow
def test_simulate_says_what_is_not_exact():
    done = run("simulate", SPECS / "tool_calling.yaml", "-g", "2")
    assert ">=" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "explain"])
def test_check_and_explain_never_import_torch(command):
    code = (
        f"import sys; sys.argv = ['rewardspec', {command!r}, {str(SPECS / 'math.yaml')!r}]\n"
        "from rewardspec.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_demo_prints_the_table_within_100_columns():
    demo = ROOT / "examples" / "demo.py"
    done = subprocess.run([sys.executable, demo], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 100
    for shown in ("29", "36", "81", "127", "GRPO / GDPO", "rollouts without signal", "disagree most"):
        assert shown in done.stdout


TAKEN = ["specs/gdpo/math.yaml", "train/spec/a.yml", "math.rewardspec.yaml", "runs/rewardspec.yml"]
LEFT = ["configs/train.yaml", "spec.md", "specs/README.md", "specs/prelude.yaml", "specs/dialects/trl.yaml"]
LEFT += ["inspec/a.yaml", "rewardspec/a.yaml", "openapi-specs.yaml"]


def test_hooks_take_specs_and_leave_other_files():
    hooks = YAML(typ="safe", pure=True).load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["entry"] for hook in hooks] == ["rewardspec check", "rewardspec fmt"]
    for hook in hooks:
        taken = [p for p in [*TAKEN, *LEFT] if re.search(hook["files"], p) and not re.search(hook["exclude"], p)]
        assert taken == TAKEN
