"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.printing.lines import misuse

A_SPEC = "A spec file (YAML), the name of a published spec such as gdpo/math, or `-` for standard input."

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="SPEC",
        help="Spec files (YAML), folders of them, names of published specs such as gdpo/math, `-` for standard input.",
        show_default=False,
        autocompletion=completing.specs,
    ),
]
File = Annotated[Path, typer.Argument(metavar="SPEC", help=A_SPEC, show_default=False, autocompletion=completing.specs)]
Dialect = Annotated[
    str | None,
    typer.Option(
        help="Compute as this trainer does: trl, verl, openrlhf or nemo_rl.",
        show_default=False,
        autocompletion=completing.dialects,
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Import and run every function that the spec names.")]
AllowPython = Annotated[
    list[str],
    typer.Option(
        "--allow-python",
        metavar="MODULE",
        help="Let `python:` name this `module:function`, or any function of this module or package.",
    ),
]
Prefix = Annotated[str, typer.Option(help="The prefix of the columns that `rewardspec score` added.")]
Set = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set a constant of `define:`.")]
TableOrJson = Annotated[
    str, typer.Option("--format", help="table or json.", autocompletion=completing.words("table", "json"))
]
TotalSteps = Annotated[int | None, typer.Option(help="The length of training.", min=1, show_default=False)]
Rates = Annotated[
    str, typer.Option("--p", metavar="NAME=P,...", help="Success rates of columns or components with two values.")
]
GroupBy = Annotated[
    str | None, typer.Option(help="The column of the log that identifies the group.", show_default=False)
]


LogFormat = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TRAINER",
        help="What wrote the log, if that is not plain.",
        show_default=False,
        autocompletion=completing.log_formats,
    ),
]
LogNames = Annotated[
    str,
    typer.Option("--columns", metavar="NAME=NAME,...", help="Names of the spec, and what they are called in the log."),
]

PageFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Also write a page: one HTML file that opens from disk.", show_default=False),
]

Items = Annotated[
    int,
    typer.Option("--items", help="The most items of a list: longer ones are not tried.", min=0, max=16),
]
MaybeItems = Annotated[  # where a log can be in place of the groups that are tried
    int | None,
    typer.Option(
        "--items",
        help="The most items of a list: longer ones are not tried. 2 by default.",
        min=0,
        max=16,
        show_default=False,
    ),
]
MaybePrefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        help="The prefix of the columns that `rewardspec score` added: `scored/` by default.",
        show_default=False,
    ),
]


def refuse(why: str, **options: object) -> None:
    """End the command if an option is given that would be ignored, and say why. options: values by name."""
    given = [name for name, value in options.items() if value is not None and value is not False and value != ""]
    if given:
        misuse(f"{' and '.join(given)} {why}")


def one_of(given: str, *known: str) -> str:
    """The value of `--format`. Another one than these ends the command."""
    if given not in known:
        misuse(f"--format must be {', '.join(known[:-1])} or {known[-1]}, not {given!r}")
    return given


def constants_of(settings: list[str]) -> dict[str, str]:
    """Constant to text, from the values of `--set`."""
    return _pairs(settings, "--set needs NAME=VALUE")


def names_of(text: str) -> dict[str, str]:
    """The names of the spec and those of the log, from `prompt=question,correct=score.acc`."""
    return _pairs(filter(None, map(str.strip, text.split(","))), "--columns needs NAME=NAME")


def _pairs(parts: Iterable[str], needs: str) -> dict[str, str]:
    """What stands on both sides of each `=`; a part without both ends the command."""
    found = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            misuse(f"{needs}, not {part!r}")
        found[name.strip()] = value.strip()
    return found


def allowed_by(trust: bool, modules: list[str]) -> bool | tuple[str, ...]:
    """The modules and functions that `--allow-python` permits; True under `--trust`."""
    from rewardspec.scoring.permission import read_allowed

    try:
        return trust or read_allowed(modules)
    except ValueError as error:
        misuse(f"--allow-python: {error}")


def sizes_of(text: str) -> list[int]:
    """Group sizes from `2,4,8` or `2..8`."""
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            sizes += range(int(first), int(last) + 1) if dots else [int(first)]
        except ValueError:
            misuse(f"group sizes must be like `2,4,8` or `2..8`, not {text!r}")
    if not sizes or min(sizes) < 1 or max(sizes) > 64:
        misuse("group sizes must be from 1 to 64")
    return sizes
