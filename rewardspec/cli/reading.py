"""The specs that a command is given: files, the files in folders, `-` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import typer

from rewardspec.cli.options import constants_of
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.language.files import MOST_BYTES, read_bytes, read_file
from rewardspec.spec import Spec
from rewardspec.spec import check as check_source
from rewardspec.text.diagnostics import Diagnostic, Report, SpecError
from rewardspec.text.shown import shown
from rewardspec.text.source import Source

STDIN = Path("-")
NAME_OF_STDIN = "<stdin>"


def name_of(path: Path) -> str:
    """What messages call a file."""
    return NAME_OF_STDIN if path == STDIN else shown(path)


def check_stdin(*paths: Path) -> None:
    """End the command where standard input would be read twice."""
    if sum(path == STDIN for path in paths) > 1:
        misuse("`-` is standard input, which can be read once")


def expanded(paths: list[Path]) -> list[Path]:
    """Folders as the spec files in them; the prelude and the dialects are no specs."""
    check_stdin(*paths)
    found = []
    for path in paths:
        if path != STDIN and path.is_dir():
            found += sorted(p for p in path.rglob("*.y*ml") if p.name != "prelude.yaml" and p.parent.name != "dialects")
        else:
            found.append(path)
    if not found:
        misuse("no spec files there")
    return found


def read_source(path: Path) -> tuple[Source | None, Report]:
    """The text of a spec file, None where it is none. Raises OSError where it cannot be read."""
    if path == STDIN:
        return read_bytes(sys.stdin.buffer.read(MOST_BYTES + 1), NAME_OF_STDIN)
    return read_file(path)


def source_of(path: Path) -> tuple[Source | None, Report]:
    """The text of a spec file, None where it is none. A file that cannot be read ends the command."""
    try:
        return read_source(path)
    except OSError as error:
        misuse(f"cannot read {name_of(path)}: {error.strerror or error}")


def loaded(path: Path, settings: list[str], dialect: str | None = None) -> Spec:
    """The spec of a file; its diagnostics go to stderr, and errors end the command."""
    constants = constants_of(settings)
    source, report = source_of(path)
    spec = None
    if source is not None:
        spec, report = check_source(source, constants)
    diagnostics = report.sorted()
    if spec is not None and dialect is not None:
        try:
            spec = spec.under(dialect)
        except SpecError as error:
            spec, diagnostics = None, error.diagnostics
        except ValueError as error:
            misuse(str(error))
    complain(diagnostics)
    if spec is None:
        raise typer.Exit(1)
    return spec


def complain(diagnostics: Iterable[Diagnostic]) -> None:
    """Show diagnostics on stderr."""
    for diagnostic in diagnostics:
        say(diagnostic.render() + "\n", err=True)


def keep(output: Path, *reads: Path) -> None:
    """End the command where it would write over a spec that it has read."""
    from rewardspec.logs.outputs import is_same

    for path in reads:
        if path != STDIN and is_same(path, output):
            misuse(f"{shown(path)} would be written over: it is the spec")
