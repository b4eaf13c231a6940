"""The commands, run in the process of the test: the output and the exit status that a process of its own has."""

import subprocess
from contextlib import chdir
from pathlib import Path

from typer.testing import CliRunner

from rewardspec.cli import app


def run(*arguments, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """What `rewardspec ARGUMENTS` prints and its exit status; an exception that would be a traceback is raised."""
    with chdir(cwd or "."):
        found = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="rewardspec")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return subprocess.CompletedProcess(list(arguments), found.exit_code, found.stdout, found.stderr)
