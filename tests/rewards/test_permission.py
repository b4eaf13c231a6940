"""Functions that a spec names by `python:` run only where the user allows it."""

import json
import subprocess
import sys

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

import rewardspec
from rewardspec import rewards
from rewardspec.adapters.embedding import embedded, write
from rewardspec.cli import app
from rewardspec.rewards import NotAllowed, ScoringError

SPEC = """
rewardspec: 1
name: own
components:
  a: {python: "permitted.style:polite", range: [0, 1]}
  b: {python: "permitted:Judge.strict", range: [0, 1]}
advantage: grpo
"""
SHELL = """
rewardspec: 1
name: shell
components: {a: {python: "subprocess:getoutput", range: [0, 1]}}
advantage: grpo
"""
MAKERS = [rewards.Scorer, rewards.for_trl, rewards.for_verl, rewards.for_openrlhf]
ROW = {"group": 1, "prompt": "p", "completion": "x", "cmd": "echo 1", "answer": "<response>y</response>"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the user's, whose import leaves a trace."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("permitted", "permitted.style"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "permitted").mkdir()
    (tmp_path / "permitted/__init__.py").write_text(
        "import os\nfrom pathlib import Path\nfrom shutil import which\n\n"
        "Path(__file__).with_name('imported').touch()\n"
        "class Judge:\n    @staticmethod\n    def strict(completion):\n        return 0.5\n\n"
        "nothing = 3\n"
    )
    (tmp_path / "permitted/style.py").write_text("def polite(completion):\n    return 1\n")
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "permitted"


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_imported_without_permission(package, make):
    spec = rewardspec.loads(SPEC)
    for allowed in (False, None, (), "permitted.style", "permitted.styl", "other", ["permitted.style:polite"]):
        with pytest.raises(NotAllowed) as refused:
            make(spec, allow_python=allowed)
        assert "permitted:Judge.strict (`b`)" in str(refused.value) and "allow_python=" in str(refused.value)
        assert not (package / "imported").exists()
    assert refused.value.asked == {"b": "permitted:Judge.strict"} and refused.value.modules == ["permitted"]


@pytest.mark.parametrize(
    "allowed",
    [True, "permitted", ["permitted"], "permitted.style:polite, permitted:Judge.strict", ("permitted", "other")],
)
@pytest.mark.parametrize("make", MAKERS)
def test_what_is_allowed_runs(package, make, allowed):
    make(rewardspec.loads(SPEC), allow_python=allowed)
    scores = rewards.Scorer(rewardspec.loads(SPEC), allow_python=allowed).measure([ROW])
    assert scores.columns == {"a": [1], "b": [0.5]}


def test_functions_that_are_passed_are_not_imported(package):
    spec = rewardspec.loads(SPEC)
    given = {"a": lambda completion: 0.25, "b": lambda completions, **_: [0.75 for _ in completions]}
    assert rewards.Scorer(spec, functions=given).measure([ROW]).columns == {"a": [0.25], "b": [0.75]}
    for make in MAKERS:
        make(spec, functions=given)
    assert not (package / "imported").exists()
    with pytest.raises(NotAllowed, match=r"permitted:Judge\.strict"):
        rewards.for_verl(spec, functions={"a": given["a"]})
    with pytest.raises(ScoringError, match="names no function for `aa`; did you mean `a`"):
        rewards.for_verl(spec, functions={"aa": given["a"]})
    with pytest.raises(ScoringError, match="is not a function"):
        rewards.for_verl(spec, functions={"a": 1})


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("permitted:os.system", "is a function of posix, but only permitted is allowed"),
        ("permitted:which", "is a function of shutil"),
        ("permitted:nothing", "is not a function"),
        ("permitted:no_such", "cannot be imported"),
    ],
)
def test_an_allowed_module_does_not_allow_those_inside_it(package, path, said):
    spec = rewardspec.loads(SPEC.replace("permitted.style:polite", path))
    with pytest.raises(ScoringError, match=said):
        rewards.Scorer(spec, allow_python="permitted")
    if path == "permitted:which":
        rewards.Scorer(spec, allow_python=["permitted", path])  # this one by name


@pytest.mark.parametrize("wrong", [[print], ["a b"], "x;y", [""], [3]])
def test_what_cannot_be_allowed_is_said(package, wrong):
    with pytest.raises(ValueError, match="cannot be allowed"):
        rewards.Scorer(rewardspec.loads(SPEC), allow_python=wrong)


def score(*options, spec="spec.yaml"):
    return CliRunner().invoke(app, ["score", spec, "rows.jsonl", "-o", "o.jsonl", *options])


def test_score_asks_before_it_imports(package):
    result = score()
    assert result.exit_code == 2 and "own would import and run permitted.style:polite (`a`)" in result.output
    assert "--allow-python permitted.style --allow-python permitted," in result.output
    assert not (package / "imported").exists() and not (package.parent / "o.jsonl").exists()
    assert score("--allow-python", "not a module").exit_code == 2
    assert score("--allow-python", "permitted").exit_code == 0
    assert score("--trust").exit_code == 0


def test_a_command_in_a_column_is_not_run(package):
    (package.parent / "shell.yaml").write_text(SHELL)
    (package.parent / "rows.jsonl").write_text(json.dumps({**ROW, "cmd": "touch ran; echo 1"}) + "\n")
    assert score(spec="shell.yaml").exit_code == 2
    assert score("--allow-python", "permitted", spec="shell.yaml").exit_code == 2
    assert not (package.parent / "ran").exists()


@pytest.mark.slow
def test_libraries_are_not_looked_for_where_score_was_started(package):
    """A folder with specs of others can hold modules of others as well."""
    (package.parent / "spec.yaml").write_text("rewardspec: 1\ncomponents: {a: {use: toolrl.format}}\nadvantage: grpo\n")
    code = (
        "import os, sys\nhere = os.getcwd()\nsys.path[:] = [p for p in sys.path if p and p != here]\n"
        "from rewardspec.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n"
        "    print(end.code, here in sys.path)\n"
    )
    for options, found in (((), "0 False"), (("--trust",), "0 True")):
        command = [sys.executable, "-c", code, "score", "spec.yaml", "rows.jsonl", "-o", "o.jsonl", *options]
        done = subprocess.run(command, cwd=package.parent, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == found, done.stderr


@pytest.mark.parametrize(("target", "name"), [("verl", "compute_score"), ("openrlhf", "reward_func")])
def test_generated_reward_files_hold_the_permission(package, target, name):
    spec = rewardspec.loads(SPEC)
    folder = package.parent / target
    write(embedded(spec, target), folder)
    text = (folder / "reward.py").read_text()
    assert "that it may import in allow_python" in text
    with pytest.raises(NotAllowed):
        exec(text, {"__file__": str(folder / "reward.py")})
    command = ["compile", "spec.yaml", "--target", target, "-o", str(folder), "--force"]
    assert CliRunner().invoke(app, [*command, "--allow-python", "permitted"]).exit_code == 0
    found = {"__file__": str(folder / "reward.py")}
    exec((folder / "reward.py").read_text(), found)
    assert callable(found[name])
    assert CliRunner().invoke(app, [*command, "--trust"]).exit_code == 0
    text = (folder / "reward.py").read_text()
    assert "['permitted.style:polite', 'permitted:Judge.strict']" in text  # what it names now, and nothing else later


def test_the_configuration_for_trl_holds_the_permission(package):
    for allowed in (False, "permitted", True):
        text = embedded(rewardspec.loads(SPEC), "trl", allowed)["trl.yaml"]
        said = YAML(typ="safe").load(text)["env"]["REWARDSPEC_ALLOW_PYTHON"]
        assert (
            said
            == {
                False: "",
                "permitted": "permitted",
                True: "permitted.style:polite,permitted:Judge.strict",
            }[allowed]
        )
        if allowed:
            rewards.for_trl(rewardspec.loads(SPEC), allow_python=said)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["math.correct", "math.integer"])
def test_processes_do_not_look_for_modules_where_score_was_started(tmp_path, use):
    """Python puts that folder first for `python -c`, even before its own library."""
    for name in ("json", "pickle", "sympy", "torch", "rewardspec", "latex2sympy2_extended"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w').close()\nraise SystemExit\n")
    (tmp_path / "spec.yaml").write_text(f"rewardspec: 1\ncomponents: {{a: {{use: {use}}}}}\nadvantage: grpo\n")
    row = {"group": 1, "completion": "\\boxed{2^{1/2}}", "answer": "\\sqrt{2}"}
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 4)
    code = (
        "import os, sys\nhere = os.getcwd()\nsys.path[:] = [p for p in sys.path if p and p != here]\n"
        "from pathlib import Path\nimport rewardspec\nfrom rewardspec.scoring.score import score\n"
        "found = score(rewardspec.load('spec.yaml'), Path('rows.jsonl'), Path('o.jsonl'), processes=2)\n"
        "print(found.scored, found.bad)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith("4 "), done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()
