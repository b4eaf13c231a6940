"""`rewardspec diff`: how two specs differ in meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import (
    A_SPEC,
    GroupBy,
    MaybeItems,
    MaybePrefix,
    TableOrJson,
    TotalSteps,
    one_of,
    refuse,
    sizes_of,
)
from rewardspec.cli.printing.lines import misuse, say_json
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import check_stdin, loaded
from rewardspec.groups.points import ITEMS
from rewardspec.logs.columns import PREFIX
from rewardspec.logs.rows import BadLog
from rewardspec.prove.diff import Difference, difference
from rewardspec.prove.diff_on_log import LogDifference, difference_on_log

SIZES = "2,3"


def command(
    before: Annotated[Path, typer.Argument(help=A_SPEC, show_default=False, autocompletion=completing.specs)],
    after: Annotated[Path, typer.Argument(help="The other spec.", show_default=False, autocompletion=completing.specs)],
    group_sizes: Annotated[
        str, typer.Option("-g", "--group-size", metavar="SIZES", help=f"Group sizes to compare; by default {SIZES}.")
    ] = "",
    items: MaybeItems = None,
    rollouts: Annotated[
        Path | None,
        typer.Option(
            help="Compare on a rollout log (JSON lines or Parquet) instead of small groups.", show_default=False
        ),
    ] = None,
    group_by: GroupBy = None,
    prefix: MaybePrefix = None,
    total_steps: TotalSteps = None,
    format: TableOrJson = "table",
) -> None:
    """Compare two specs: their keys, and the advantages that they compute for small groups or for a rollout log.

    rewardspec diff gdpo/math gdpo/math_conditioned -g 2..4

    Exit status 1 if they differ.
    """
    one_of(format, "table", "json")
    if rollouts is not None:
        refuse(
            "cannot be combined with --rollouts, which takes the groups of a log",
            **{"-g": group_sizes, "--items": items},
        )
    else:
        of_log = {"--group-by": group_by, "--prefix": prefix, "--total-steps": total_steps}
        refuse("cannot be used without --rollouts", **of_log)
    sizes = sizes_of(group_sizes or SIZES)
    check_stdin(before, after)
    specs = loaded(before, []), loaded(after, [])
    found: Difference | LogDifference
    try:
        with progress("comparing"):
            if rollouts is None:
                found = difference(*specs, sizes, ITEMS if items is None else items)
            else:
                found = difference_on_log(*specs, rollouts, group_by, total_steps, prefix or PREFIX)
    except (BadLog, OSError) as error:
        misuse(str(error))
    if format == "json":
        say_json(found.to_json())
    else:
        from rewardspec.cli.printing.difference import show_difference

        show_difference(found)
    raise typer.Exit(0 if found.is_none else 1)
