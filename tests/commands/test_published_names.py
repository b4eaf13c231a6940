"""Published specs by name: in commands and in Python, beside files of the same name, and completed by a shell."""

import os
import subprocess
import sys
import warnings
from contextlib import chdir

import pytest
from commands_in_process import run
from places import SPECS

import rewardspec
from rewardspec.language.published import nearest_published, published, published_names

COMPONENT = "rewardspec: 1\nname: own\ncomponents: {right: {values: [0, 1]}}\nadvantage: grpo\n"


def test_every_published_spec_has_its_path_as_name():
    files = [path for path in SPECS.glob("*/*.yaml") if path.parent.name != "dialects"]
    assert sorted(f"{path.parent.name}/{path.stem}" for path in files) == published_names()
    assert all(published(name).samefile(SPECS / f"{name}.yaml") for name in published_names())


@pytest.mark.parametrize("name", ["", ".", "gdpo", "gdpo/", "math", "/gdpo/math", "../specs/gdpo/math", "dialects/trl"])
def test_no_other_text_is_the_name_of_a_published_spec(name):
    assert published(name) is None


@pytest.mark.slow
def test_load_and_the_functions_of_the_package_take_names(tmp_path):
    with chdir(tmp_path):
        spec = rewardspec.load("gdpo/math", constants={"limit": 2000})
        assert spec.fingerprint == rewardspec.load(SPECS / "gdpo/math.yaml", constants={"limit": 2000}).fingerprint
        assert [d.code for d in rewardspec.check("gdpo/math")] == ["length-without-success", "phantom-gradient"]
        assert rewardspec.compile("gdpo/math").spec.name == "gdpo-math"
        assert not rewardspec.diff("gdpo/math", "gdpo/math_grpo", 2).is_none


def test_a_file_of_that_name_wins_and_it_is_said(tmp_path):
    (tmp_path / "gdpo").mkdir()
    (tmp_path / "gdpo/math").write_text(COMPONENT)
    with chdir(tmp_path), pytest.warns(UserWarning, match="is the file here, not the published spec"):
        assert rewardspec.load("gdpo/math").name == "own"
    done = run("check", "gdpo/math", cwd=tmp_path)
    assert done.stderr == "note: `gdpo/math` is the file here, not the published spec of this name\n"
    assert "1 spec checked: 0 errors, 0 warnings" in done.stdout


def test_a_folder_of_that_name_wins_and_it_is_said(tmp_path):
    (tmp_path / "gdpo/math").mkdir(parents=True)
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / "gdpo/math" / name).write_text(COMPONENT)
    done = run("check", "gdpo/math", cwd=tmp_path)
    assert "2 specs checked" in done.stdout and "is the folder here, not the published spec" in done.stderr


def test_a_folder_hides_no_page(tmp_path):
    for word in ("grpo", "zscore"):
        (tmp_path / word).mkdir()  # where a run writes, for example
        done = run("explain", word, cwd=tmp_path)
        assert done.returncode == 0 and f"# {word}" in done.stdout and not done.stderr


def test_a_file_that_lacks_only_the_suffix_is_named(tmp_path):
    (tmp_path / "gdpo").mkdir()
    (tmp_path / "gdpo/math.yaml").write_text(COMPONENT)
    done = run("check", "gdpo/math", cwd=tmp_path)
    assert "gdpo/math:15:3" in done.stdout
    assert done.stderr == "note: `gdpo/math` is the published spec; the file here is `gdpo/math.yaml`\n"


def test_the_published_file_itself_is_no_other_spec():
    done = run("check", "gdpo/math", cwd=SPECS)
    assert done.stderr == ""
    with chdir(SPECS), warnings.catch_warnings():
        warnings.simplefilter("error")
        rewardspec.load("gdpo/math")


@pytest.mark.parametrize(
    ("given", "help"),
    [
        ("gdpo/mth", "did you mean the published spec `gdpo/math`?"),
        ("specs/gdpo/math.yaml", "did you mean the published spec `gdpo/math`?"),
        ("./specs/open_r1/open_r1.yml", "did you mean the published spec `open_r1/open_r1`?"),
        ("open_r1", "did you mean the published spec `open_r1/open_r1`?"),
        ("gdpo", "published specs of gdpo are `gdpo/code`, `gdpo/code_decoupled`, `gdpo/code_dr_grpo`, ..."),
        ("prss", "published specs of prs are `prs/general`, `prs/long`, `prs/long_zero_one`, ..."),
        ("spec.yaml", None),
        ("math.yaml", None),
        ("configs/train", None),
        ("\x1b[1mgdpo/math", "did you mean the published spec `gdpo/math`?"),
    ],
)
def test_unknown_names(given, help, tmp_path):
    assert nearest_published(given) == help
    with chdir(tmp_path), pytest.raises(FileNotFoundError) as error:
        rewardspec.load(given)
    assert getattr(error.value, "__notes__", []) == ([] if help is None else [help])
    done = run("verify", given, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith(f"; {help}\n" if help else "No such file or directory\n")


@pytest.mark.slow
def test_every_command_that_takes_a_spec_takes_a_name(tmp_path):
    rows = '{"group": 1, "correct": 1, "tokens": 10}\n{"group": 1, "correct": 0, "tokens": 10}\n'
    (tmp_path / "log.jsonl").write_text(rows)
    for arguments in (
        ["check", "gdpo/math"],
        ["explain", "gdpo/math", "--format", "json"],
        ["verify", "maxrl/maxrl", "-g", "2"],
        ["simulate", "gdpo/math", "-g", "2"],
        ["compile", "gdpo/math", "-o", "math.py"],
        ["compile", "gdpo/math", "--target", "verl", "-o", "verl"],
        ["try", "gdpo/math", "correct=1,0", "tokens=1,2"],
        ["fmt", "gdpo/math", "--check"],
        ["diff", "gdpo/math", "gdpo/math"],
        ["replay", "log.jsonl", "--spec", "gdpo/math", "--from", "table"],
        ["simulate", "gdpo/math", "--rollouts", "log.jsonl"],
    ):
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr[:5]) in ((0, ""), (0, "wrote")), (arguments, done.stderr)


def test_fmt_leaves_published_specs_alone(tmp_path):
    before = (SPECS / "gdpo/math.yaml").read_bytes()
    done = run("fmt", "gdpo/math", cwd=tmp_path)
    assert done.returncode == 2 and "rewardspec new NAME --like gdpo/math" in done.stderr
    assert (SPECS / "gdpo/math.yaml").read_bytes() == before


def test_new_says_what_it_copied(tmp_path):
    assert (
        run("new", "mine", "--like", "open_r1", cwd=tmp_path).stdout == "wrote mine.yaml, a copy of open_r1/open_r1\n"
    )
    assert rewardspec.load(tmp_path / "mine.yaml").name == "mine"
    done = run("new", "other", "--like", "open_r", cwd=tmp_path)
    assert "did you mean the published spec `open_r1/open_r1`?" in done.stderr


# Completion: what typer's scripts get for an unfinished line


def completed(line, tmp_path, shell="bash"):
    words = line.split(" ")
    given = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        [sys.executable, "-m", "rewardspec"],
        env={**os.environ, "_REWARDSPEC_COMPLETE": f"complete_{shell}", **given},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if shell == "bash" else done.stdout


@pytest.mark.slow
def test_shells_complete_names_files_and_words(tmp_path):
    (tmp_path / "gd").mkdir()
    for name in ("gdpo.yaml", "gdpo.txt", "gd `x`.yaml"):
        (tmp_path / name).write_text("")
    assert completed("rewardspec check gdpo/math_c", tmp_path)[:1] == ["gdpo/math_conditioned"]
    of_gd = [name for name in published_names() if name.startswith("gd")]
    assert completed("rewardspec diff gdpo/math gd", tmp_path) == [*of_gd, "gd/", "gdpo.yaml"]
    assert completed("rewardspec check gdpo.", tmp_path) == [""]  # the shell completes files then
    assert completed("rewardspec explain x --dialect v", tmp_path) == ["verl"]
    assert completed("rewardspec check x --error wrong-a", tmp_path) == ["wrong-above-right"]
    assert completed("rewardspec chec gd", tmp_path) == [""]  # no command is named so
    assert completed("rewardspec list s", tmp_path) == ["schemes", "specs"]
    assert completed("rewardspec replay x --from ver", tmp_path) == ["verifiers", "verl"]
    assert completed("rewardspec simulate x --advantage dec", tmp_path) == ["decoupled"]
    assert '"open_r1/open_r1"' in completed("rewardspec new x --like open", tmp_path, "zsh")
    assert completed("rewardspec watch runs --spec open", tmp_path, "fish").split() == [
        "open_r1/open_r1",
        "open_r1/open_r1_code",
    ]


@pytest.mark.slow
def test_completion_can_be_installed(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for shell, place in (
        ("bash", ".bash_completions/rewardspec.sh"),
        ("fish", ".config/fish/completions/rewardspec.fish"),
    ):
        command = [sys.executable, "-m", "rewardspec", "--install-completion", shell]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert "_REWARDSPEC_COMPLETE" in (tmp_path / place).read_text()
