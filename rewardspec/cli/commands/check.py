"""`rewardspec check`: the errors and findings of specs."""

from __future__ import annotations

from typing import Annotated

import typer

from rewardspec.api import check_text
from rewardspec.cli import completing
from rewardspec.cli.options import Files, Items, Rates, Set, TotalSteps, constants_of, one_of, sizes_of
from rewardspec.cli.printing.lines import misuse, say, say_diagnostic, say_json
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import expanded, name_of, source_of
from rewardspec.groups.points import ITEMS
from rewardspec.groups.rates import read_rates
from rewardspec.lint import Run, codes, page
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.shown import shown


def command(
    files: Files,
    format: Annotated[
        str,
        typer.Option(
            help="text, json, sarif or github.", autocompletion=completing.words("text", "json", "sarif", "github")
        ),
    ] = "text",
    errors: Annotated[
        list[str],
        typer.Option(
            "--error",
            metavar="CODE",
            help="Treat this finding as an error; can be repeated.",
            autocompletion=completing.findings,
        ),
    ] = [],  # noqa: B006
    strict: Annotated[bool, typer.Option(help="Treat every finding as an error.")] = False,
    rates: Rates = "",
    group_sizes: Annotated[
        str, typer.Option("-g", "--group-size", metavar="SIZES", help="Group sizes of the run: `8`, `2,4,8` or `2..8`.")
    ] = "",
    total_steps: TotalSteps = None,
    items: Items = ITEMS,
    set_: Set = [],  # noqa: B006
) -> None:
    """Report all errors and findings of specs, without running anything.

    rewardspec check spec.yaml --p correct=0.3 -g 8
    """
    one_of(format, "text", "json", "sarif", "github")
    for code in errors:
        if code not in codes():
            misuse(f"unknown finding {code!r}; `rewardspec list findings` shows all")
    if rates and not group_sizes:
        misuse("--p needs a group size: add -g 8")
    sizes = sizes_of(group_sizes) if group_sizes else []
    try:
        run = Run(read_rates(rates) if rates else {}, sizes, total_steps, items)
    except ValueError as error:
        misuse(str(error))
    constants = constants_of(set_)
    found: list[Diagnostic] = []
    notes: list[Diagnostic] = []  # what was not checked
    paths = expanded(files)
    with progress("checking") as show:
        for number, path in enumerate(paths):
            if show is not None:
                show(f"checking {name_of(path)}", number, len(paths))
            source, report = source_of(path)
            if source is None:
                found += report.sorted()
                continue
            try:
                said, left = check_text(source, constants, run, strict, errors)
            except ValueError as error:
                misuse(f"{name_of(path)}: {error}")
            found += said
            notes += left
    if format == "json":
        say_json([d.to_json() for d in (*found, *notes)])
    elif format == "sarif":
        from rewardspec.cli.printing.sarif import sarif

        say_json(sarif([*found, *notes], page))
    elif format == "github":
        from rewardspec.cli.printing.github import github

        for diagnostic in (*found, *notes):
            typer.echo(github(diagnostic))
    else:
        _show(found, notes, len(paths))
    raise typer.Exit(1 if any(d.severity == "error" for d in found) else 0)


def _show(found: list[Diagnostic], notes: list[Diagnostic], files: int) -> None:
    for diagnostic in found:
        say_diagnostic(diagnostic)
        say("")
    for note in notes:
        say(f"{shown(note.span.source.name)}: {note.render()}")
    broken = sum(d.severity == "error" for d in found)
    warnings = len(found) - broken
    counts = f"{broken} error{'s' * (broken != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    say(f"{files} spec{'s' * (files != 1)} checked: {counts}")
    if warnings:
        say("`rewardspec explain CODE` explains a warning; `allow: {CODE: reason}` in the spec suppresses it")
