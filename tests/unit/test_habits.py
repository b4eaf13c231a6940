"""How tests run: what is skipped says why, also where no trainer is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TRAINERS = ["trl", "verl", "transformers", "datasets", "ray", "accelerate", "tensordict", "omegaconf", "transfer_queue"]


SKIPS = """
import pytest
@pytest.mark.skip
def test_bare_mark(): pass
def test_bare_call(): pytest.skip()
@pytest.mark.skip(reason="a word")
def test_mark(): pass
def test_call(): pytest.skip("a word")
@pytest.mark.xfail
def test_known(): assert False
"""


def run(*arguments):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, cwd=TESTS.parent, capture_output=True, text=True, encoding="utf-8", env=environment
    ).stdout


@pytest.mark.slow
def test_a_skip_without_a_reason_fails(tmp_path):
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.skip(allow_module_level=True)\n")
    (tmp_path / "pytest.ini").write_text("")
    said = run("-p", "habits", "-c", str(tmp_path / "pytest.ini"), "--continue-on-collection-errors", str(tmp_path))
    assert "1 failed, 2 skipped, 1 xfailed, 2 errors" in said
    for name in ["test_skips.py::test_bare_mark", "test_skips.py::test_bare_call", "test_module.py"]:
        assert f"{name} is skipped and does not say why" in said


@pytest.mark.slow
def test_without_trainers_their_tests_are_skipped_and_say_why():
    absent = [argument for name in TRAINERS for argument in ("--without", name)]
    said = run("--collect-only", *absent, "tests")
    assert "error" not in said.splitlines()[-1], said[-3000:]
    for path in sorted((TESTS / "trainers").glob("test_adapter_*.py")):
        assert f"tests/trainers/{path.name}" in said.partition("short test summary")[2]
