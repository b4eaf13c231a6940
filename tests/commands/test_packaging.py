"""What is installed works with no checkout beside it, and what is compiled with nothing but torch."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch
from places import ROOT

import rewardspec

SITE = Path(torch.__file__).parent.parent

MODULE_RUN = """
import sys
try:
    import rewardspec
except ModuleNotFoundError:
    pass
else:
    sys.exit("rewardspec is installed here, so this proves nothing")
from advantage import advantages, RolloutError
out = advantages({"correct": [1, 0, 1, 0], "tokens": [10, 10, 9000, 9000]}, groups=2)
print([round(a, 4) for a in out.advantages.tolist()])
print(sorted(out.metrics()))
try:
    advantages({"correct": [1, 0, 2, 0], "tokens": [1, 1, 1, 1]}, groups=2)
except RolloutError as error:
    print(error)
"""


def bare_python(folder):
    """A Python that sees every installed package but rewardspec."""
    venv.create(folder, with_pip=False)
    packages = folder / "packages"
    packages.mkdir()
    for entry in SITE.iterdir():
        if "rewardspec" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python", {**os.environ, "PYTHONPATH": str(packages)}


@pytest.mark.slow
def test_written_module_runs_where_rewardspec_is_not_installed(tmp_path):
    python, environment = bare_python(tmp_path / "env")
    spec = rewardspec.load(ROOT / "specs/gdpo/math.yaml")
    (tmp_path / "advantage.py").write_text(spec.python)
    (tmp_path / "run.py").write_text(MODULE_RUN)
    done = subprocess.run([python, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # two groups, (1,0) each in `correct`, `length` (1,1) and (0,0): z-scores 0.7071 over a batch std of 0.8165
    assert "[0.866, -0.866, 0.866, -0.866]" in done.stdout
    assert "column `correct` is 2 at rollout 2 of group 1" in done.stdout


@pytest.mark.slow
def test_wheel_works_without_the_checkout(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "rewardspec/py.typed" in zipfile.ZipFile(wheel).namelist()
    home = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(home),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    python, environment = bare_python(tmp_path / "env")
    environment["PYTHONPATH"] = os.pathsep.join([str(home), environment["PYTHONPATH"]])
    code = """
import rewardspec
from rewardspec.resources import resource
assert str(resource("specs")).startswith(HOME), resource("specs")
fn = rewardspec.compile(resource("specs/gdpo/math.yaml"))
print(fn({"correct": [1, 0], "tokens": [5, 5]}, groups=2).advantages.tolist())
""".replace("HOME", repr(str(home)))
    done = subprocess.run([python, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for arguments in (["check", str(home / "rewardspec/specs/gdpo"), "gdpo/math"], ["explain", "grpo"]):
        command = [python, "-m", "rewardspec.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + done.stdout


def test_in_process_function_is_the_written_module():
    spec = rewardspec.load(ROOT / "specs/gdpo/math.yaml")
    assert rewardspec.compile(spec).source == spec.python


def test_tracebacks_show_emitted_lines():
    import traceback

    fn = rewardspec.compile(ROOT / "specs/gdpo/math.yaml")
    try:
        fn({"correct": [0, 2], "tokens": [1, 1]}, groups=2)
    except ValueError:
        assert "batch = Batch(columns, groups, COLUMNS, step, total_steps, seed)" in traceback.format_exc()
