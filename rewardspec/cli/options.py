"""Options that several commands have, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli.printing.lines import misuse

Files = Annotated[list[Path], typer.Argument(help="Spec files (YAML), `-` for standard input.", show_default=False)]
File = Annotated[Path, typer.Argument(help="A spec file (YAML), `-` for standard input.", show_default=False)]
Dialect = Annotated[
    str | None,
    typer.Option(help="Take a trainer's numbers: trl, verl, openrlhf or nemo_rl.", show_default=False),
]
Trust = Annotated[bool, typer.Option("--trust", help="Import and run whatever functions the spec names.")]
AllowPython = Annotated[
    list[str],
    typer.Option(
        "--allow-python",
        metavar="MODULE",
        help="Let the spec name functions of this module or package by `python:`, or this `module:function`.",
    ),
]
Prefix = Annotated[str, typer.Option(help="What the names of columns begin with that `rewardspec score` has added.")]
Set = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set a constant of `define:`.")]
TableOrJson = Annotated[str, typer.Option("--format", help="table or json.")]
TotalSteps = Annotated[int | None, typer.Option(help="The length of training.", min=1, show_default=False)]
Rates = Annotated[
    str, typer.Option("--p", metavar="NAME=P,...", help="How often columns or components with two values succeed.")
]
GroupBy = Annotated[str | None, typer.Option(help="The log's column that tells groups apart.", show_default=False)]


def one_of(given: str, *known: str) -> str:
    """What `--format` is, which must be one of these."""
    if given not in known:
        misuse(f"--format is {', '.join(known[:-1])} or {known[-1]}, not {given!r}")
    return given


def constants_of(settings: list[str]) -> dict[str, str]:
    """The texts that `--set` gives constants, by name."""
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip() or not value.strip():
            misuse(f"--set takes NAME=VALUE, not {setting!r}")
        found[name.strip()] = value.strip()
    return found


def allowed_by(trust: bool, modules: list[str]) -> bool | tuple[str, ...]:
    """What `--trust` and `--allow-python` allow to be imported."""
    from rewardspec.scoring.permission import read_allowed

    try:
        return trust or read_allowed(modules)
    except ValueError as error:
        misuse(f"--allow-python: {error}")


def sizes_of(text: str) -> list[int]:
    """Group sizes as they are written, `2,4,8` or `2..8`."""
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            sizes += range(int(first), int(last) + 1) if dots else [int(first)]
        except ValueError:
            misuse(f"group sizes are written `2,4,8` or `2..8`, not {text!r}")
    if not sizes or min(sizes) < 1 or max(sizes) > 64:
        misuse("group sizes go from 1 to 64")
    return sizes
