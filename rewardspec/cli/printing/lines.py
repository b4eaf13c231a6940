"""Lines and JSON, safe to print with untrusted text in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NoReturn

import typer

from rewardspec.text.shown import inert_json, printed


def say(text: str, err: bool = False) -> None:
    """Print lines; untrusted text in them is made harmless."""
    typer.echo(printed(text), err=err)


def say_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(inert_json(json.dumps(value, indent=2)))


def misuse(message: str) -> NoReturn:
    """End the command with a message on stderr and status 2."""
    say(f"rewardspec: {message}", err=True)
    raise typer.Exit(2)


def say_over(text: str) -> None:
    """Replace the progress line on stderr; an empty text clears it."""
    typer.echo(f"\r\033[K{text}", nl=False, err=True)


def cell(value: object) -> str:
    """The text of a value in a table: floats to six digits, `-` for None, `[1, 0]` for the values of items."""
    if isinstance(value, list):
        return f"[{', '.join(map(cell, value))}]"
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def ranges(sizes: Sequence[int]) -> str:
    """`2..8` for consecutive sizes, else `2, 4, 8`."""
    if len(sizes) > 2 and [*sizes] == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]}..{sizes[-1]}"
    return ", ".join(map(str, sizes))
