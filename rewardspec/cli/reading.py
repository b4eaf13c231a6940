"""The specs of a command: files, the files in folders, published specs by name, `-` for standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import typer

from rewardspec.cli.options import constants_of
from rewardspec.cli.printing.lines import misuse, say, say_diagnostic
from rewardspec.language.files import MOST_BYTES, read_bytes, read_file
from rewardspec.language.published import located
from rewardspec.spec import Spec
from rewardspec.spec import check as check_source
from rewardspec.text.diagnostics import Diagnostic, Report, SpecError
from rewardspec.text.shown import shown
from rewardspec.text.source import Source

STDIN = Path("-")
NAME_OF_STDIN = "<stdin>"


def name_of(path: Path) -> str:
    """The name of a file in messages."""
    return NAME_OF_STDIN if path == STDIN else shown(path)


def check_stdin(*paths: Path) -> None:
    """End the command if standard input would be read twice."""
    if sum(path == STDIN for path in paths) > 1:
        misuse("`-` (standard input) can be read only once")


def expanded(paths: list[Path]) -> list[Path]:
    """The spec files, with folders replaced by the spec files in them (without the prelude and the dialects)."""
    check_stdin(*paths)
    found = []
    for path in paths:
        if path != STDIN and os.path.isdir(path):
            _note(path)
            found += sorted(p for p in path.rglob("*.y*ml") if p.name != "prelude.yaml" and p.parent.name != "dialects")
        else:
            found.append(path)
    if not found:
        misuse("no spec files found")
    return found


def read_source(path: Path) -> tuple[Source | None, Report]:
    """The text of a spec file, None if it is too large or not UTF-8. Raises OSError."""
    if path == STDIN:
        return read_bytes(sys.stdin.buffer.read(MOST_BYTES + 1), NAME_OF_STDIN)
    _note(path)
    return read_file(path)


def _note(path: Path) -> None:
    """Say which spec is read where a file here and a published spec could be meant."""
    if note := located(path).note:
        say(f"note: {note}", err=True)


def is_published(path: Path) -> bool:
    """Whether it is the name of a published spec, and no file."""
    return path != STDIN and located(path).is_published


def source_of(path: Path) -> tuple[Source | None, Report]:
    """The same; a file that cannot be read ends the command."""
    try:
        return read_source(path)
    except OSError as error:
        hints = "".join(f"; {hint}" for hint in getattr(error, "__notes__", ()))
        misuse(f"cannot read {name_of(path)}: {error.strerror or error}{hints}")


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


def under(spec: Spec, scheme: str) -> Spec:
    """The spec with another advantage and the same constants; errors end the command."""
    found, report = check_source(spec.source, {} if spec.made is None else spec.made.constants, scheme)
    if found is None:
        complain(report.sorted())
        raise typer.Exit(1)
    return found


def complain(diagnostics: Iterable[Diagnostic]) -> None:
    """Print diagnostics on stderr."""
    for diagnostic in diagnostics:
        say_diagnostic(diagnostic, err=True)
        say("", err=True)


def keep(output: Path, *reads: Path) -> None:
    """End the command if it would overwrite a spec that it has read."""
    from rewardspec.logs.outputs import is_same

    for path in reads:
        if path != STDIN and is_same(path, output):
            misuse(f"{shown(path)} is the spec and would be overwritten")
