"""`rewardspec report`: a page of all that can be said of a spec without a run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import Dialect, File, Items, Rates, Set, TotalSteps, one_of, sizes_of
from rewardspec.cli.printing.lines import misuse, say_json
from rewardspec.cli.printing.progress import progress
from rewardspec.cli.reading import loaded
from rewardspec.cli.writing import check_page, write_page
from rewardspec.groups.points import ITEMS


def command(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page: one HTML file that opens from disk.", show_default=False),
    ] = None,
    group_sizes: Annotated[
        str, typer.Option("-g", "--group-size", metavar="SIZES", help="Group sizes: `2,4,8` or `2..8`.")
    ] = "2,4,8",
    rates: Rates = "",
    total_steps: TotalSteps = None,
    items: Items = ITEMS,
    dialect: Dialect = None,
    format: Annotated[
        str,
        typer.Option("--format", help="page or json: also print it.", autocompletion=completing.words("page", "json")),
    ] = "page",
    set_: Set = [],  # noqa: B006
) -> None:
    """Write a page about a spec: findings, guarantees, groups that can be told apart, what components can earn.

    rewardspec report spec.yaml -o page.html --total-steps 500
    """
    one_of(format, "page", "json")
    if output is None and format == "page":
        misuse("name the page: -o page.html; or print its numbers: --format json")
    check_page(output, file)
    from rewardspec.groups.rates import read_rates
    from rewardspec.pages.report import report, report_page

    sizes = sizes_of(group_sizes)
    spec = loaded(file, set_, dialect)
    try:
        stated: dict[str, Fraction] = read_rates(rates) if rates else {}
        with progress("reporting") as show:
            found = report(spec, sizes, rates=stated, items=items, total_steps=total_steps, progress=show)
    except ValueError as error:
        misuse(str(error))
    if output is not None:
        write_page(output, report_page(found))
    if format == "json":
        say_json(found.to_json())
