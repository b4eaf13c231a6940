"""`rewardspec list`: the names that specs can use."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.options import TableOrJson, one_of
from rewardspec.cli.printing.lines import misuse, say_json
from rewardspec.cli.printing.table import console, table
from rewardspec.language.catalogue import Entry, catalogue
from rewardspec.lint import codes, page


def command(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="One kind only, such as `rewards` or `schemes`.", show_default=False, autocompletion=completing.kinds
        ),
    ] = None,
    format: TableOrJson = "table",
) -> None:
    """List schemes, definitions, functions, rewards, dialects, specs and findings, each with its source.

    rewardspec list rewards
    """
    one_of(format, "table", "json")
    entries = [*catalogue(), *(Entry("finding", code, (page(code) or "").split("\n")[0]) for code in codes())]
    kinds = list(dict.fromkeys(entry.kind for entry in entries))
    if kind is not None:
        entries = [entry for entry in entries if entry.kind == kind.lower().removesuffix("s")]
        if not entries:
            misuse(f"unknown kind {kind!r}: the kinds are {', '.join(k + 's' for k in kinds)}")
    if format == "json":
        say_json([asdict(entry) for entry in entries])
        return
    out = console()
    for of in dict.fromkeys(entry.kind for entry in entries):
        rows = [(entry.name, entry.about) for entry in entries if entry.kind == of]
        table(out, f"{of.capitalize()}s", ("name", "description and source"), rows)
