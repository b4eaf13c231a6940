"""`rewardspec replay`: what a logged run comes to under a spec, and under another."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import (
    Dialect,
    GroupBy,
    LogFormat,
    LogNames,
    PageFile,
    Set,
    TableOrJson,
    TotalSteps,
    names_of,
    one_of,
)
from rewardspec.cli.printing.lines import misuse, say, say_json
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import STDIN, check_stdin, complain, loaded
from rewardspec.cli.writing import check_page, write_page
from rewardspec.logs.run import Run
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import SpecError


def command(
    run: Annotated[
        list[Path], typer.Argument(help="The files of a run, or the folders that they are in.", show_default=False)
    ],
    spec: Annotated[
        list[Path],
        typer.Option(
            "--spec",
            metavar="SPEC",
            help="A spec file, or a published name; a second one is compared with the first. By default the log's own.",
            autocompletion=completing.specs,
        ),
    ] = [],  # noqa: B006  # typer reads it
    by: Annotated[
        str | None, typer.Option(help="Also count groups by the values of this column.", show_default=False)
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            metavar="CONDITION,...",
            help="Exit with status 1 if one holds: `warning`, `component-dead`, `groups_without_signal > 0.5`.",
        ),
    ] = "",
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Try other schemes, gates and weights of the first spec on the log.")
    ] = False,
    from_: LogFormat = None,
    columns: LogNames = "",
    group_by: GroupBy = None,
    total_steps: TotalSteps = None,
    set_: Set = [],  # noqa: B006
    dialect: Dialect = None,
    output: PageFile = None,
    format: TableOrJson = "table",
) -> None:
    """Replay a logged run: the health of its groups, its components, an audit, and another spec on the same rollouts.

    rewardspec replay completions/ --spec spec.yaml --spec other.yaml --fail-on warning -o report.html
    """
    one_of(format, "table", "json")
    check_stdin(*spec)
    if STDIN in run:
        misuse("a run is read from files, not from standard input")
    if len(spec) > 2:
        misuse("--spec can be given twice: a run is replayed under one spec, or two are compared")
    from rewardspec.logs.open import open_run
    from rewardspec.logs.rows import BadLog
    from rewardspec.runs.conditions import condition_of
    from rewardspec.runs.replay import replay
    from rewardspec.runs.suggest import suggest as suggested

    try:
        conditions = [condition_of(text) for text in fail_on.split(",") if text.strip()]
    except ValueError as error:
        misuse(f"--fail-on: {error}")
    check_page(output, *run, *spec)
    specs = [loaded(path, set_, dialect) for path in spec]
    try:
        opened = open_run(run, format=from_, columns=names_of(columns), group_by=group_by)
        if not specs:
            specs = [spec_of(opened, bool(set_), dialect)]
        with progress("replaying") as show:

            def tell(steps: int, rollouts: int) -> None:
                assert show is not None
                show(f"replaying: {rollouts:,} rollouts", steps)

            found = replay(opened, specs, by=by, total_steps=total_steps, progress=show and tell)
        with progress("trying other schemes, gates and weights"):
            suggestions = suggested(opened, specs[0], found.specs[0], total_steps) if suggest else ()
        if output is not None:
            from rewardspec.pages.replay import replay_page

            with progress("making the page"):
                page = replay_page(found, specs, suggestions if suggest else None)
            write_page(output, page)
    except (BadLog, OSError) as error:
        misuse(str(error))
    if format == "json":
        say_json(found.to_json() | ({"suggestions": [asdict(one) for one in suggestions]} if suggest else {}))
    else:
        from rewardspec.cli.printing.replay import show_replay, show_suggestions

        show_replay(found)
        if suggest:
            show_suggestions(found.specs[0], suggestions)
    held = [(condition.text, why) for condition in conditions if (why := condition.holds(found))]
    for text, why in held:
        say(f"--fail-on {text}: {why}", err=True)
    unknown = [condition.text for condition in conditions if condition.unknown(found)]
    for text in unknown:
        say(f"--fail-on {text}: not known of this run", err=True)
    raise typer.Exit(1 if held else 2 if unknown else 0)


def spec_of(run: Run, sets: bool, dialect: str | None = None) -> Spec:
    """The spec that a log has; without one the command ends."""
    if run.spec is None:
        misuse("the log does not have the spec that it was trained under: name one with --spec")
    if sets:
        misuse("--set is for specs that --spec names; the log's own spec is what it was trained under")
    from rewardspec.runs.batches import own_spec

    try:
        return own_spec(run.spec if dialect is None else replace(run.spec, dialect=dialect))
    except SpecError as error:
        complain(error.diagnostics)
        raise typer.Exit(1) from None
    except ValueError as error:
        misuse(str(error))
