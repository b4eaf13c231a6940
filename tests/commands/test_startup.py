"""What answers at once imports little. `python tests/benchmarks/startup.py` says how long it takes."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rewardspec.cli import app
from rewardspec.resources import resource

PROGRAM = """
import sys
from rewardspec.cli import main
sys.argv = ["rewardspec", *{arguments!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted({{name.partition(".")[0] for name in sys.modules}} | {{n for n in sys.modules if n.count(".") == 1}}))
"""
HEAVY = {"torch", "numpy", "pydantic", "rich", "flint", "lark", "pyarrow", "scipy", "matplotlib"}
HEAVY |= {"trl", "verl", "asyncio", "ssl", "httpx"}


@pytest.mark.parametrize("arguments", [["check", str(resource("specs/gdpo/math.yaml"))], ["--version"]])
def test_check_imports_nothing_heavy_and_nothing_that_computes(arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=arguments)], capture_output=True, text=True, check=True
    )
    names = {*done.stdout.splitlines()[-1].split()}
    assert not names & HEAVY
    assert not names & {f"rewardspec.{room}" for room in ("adapters", "logs", "prove", "scoring")}


def test_importing_the_package_imports_nothing_else_of_it():
    code = "import sys, rewardspec; print(*(n for n in sys.modules if n.startswith('rewardspec')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rewardspec._version", "rewardspec"]


@pytest.mark.parametrize("size", ["x", "0"])
def test_what_is_no_plain_text_is_still_checked_by_typer(size):
    done = CliRunner().invoke(app, ["check", str(resource("specs/gdpo/math.yaml")), "--total-steps", size])
    assert done.exit_code == 2
    assert "--total-steps" in done.output
