"""`rewardspec new`: a new spec, copied from a published one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewardspec.cli import completing
from rewardspec.cli.printing.lines import misuse, say
from rewardspec.language.editor import is_name, spec_like
from rewardspec.text.shown import shown


def command(
    name: Annotated[str, typer.Argument(help="Name of the new spec; the file is NAME.yaml.", show_default=False)],
    like: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The published spec to copy, such as open_r1 or gdpo/math; `rewardspec list specs` shows all.",
            autocompletion=completing.published,
        ),
    ] = "gdpo/math_conditioned",
) -> None:
    """Write a new spec that is a copy of a published one.

    rewardspec new mine --like open_r1
    """
    name = name.removesuffix(".yaml")
    if not is_name(name):
        misuse(f"{name!r} is not a valid name: use letters, digits, `-`, `_` and `.`")
    path = Path(f"{name}.yaml")
    try:
        text, place = spec_like(name, like)
        with open(path, "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        misuse(f"{shown(path)} exists already")
    except ValueError as error:
        misuse(str(error))
    except OSError as error:
        misuse(f"cannot write {shown(path)}: {error.strerror or error}")
    say(f"wrote {shown(path)}, a copy of {place}")
