"""Lines and JSON, safe to print with untrusted text in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

import typer

from rewardspec.cli.printing.terminal import coloured, has_colours, width, wrapped
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.shown import inert_json, printed, shown


def say(text: str, err: bool = False) -> None:
    """Print lines; untrusted text in them is made harmless."""
    typer.echo(printed(text), err=err)


def say_diagnostic(diagnostic: Diagnostic, err: bool = False) -> None:
    """Print a diagnostic as a terminal shows it."""
    text = printed(diagnostic.render())
    typer.echo(coloured(text, err) if has_colours(err) else text, err=err, color=has_colours(err))


def say_legend(words: Mapping[str, str]) -> None:
    """Print what the words of a table mean."""
    for word, meaning in words.items():
        say_wrapped(f"{word}: {meaning}")


def say_wrapped(text: str, indent: str = "") -> None:
    """Print one line, wrapped to the terminal."""
    for line in wrapped(shown(text), width() - len(indent)):
        say(f"{indent}{line}")


def say_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(inert_json(json.dumps(value, indent=2)))


def misuse(message: str) -> NoReturn:
    """End the command with a message on stderr and status 2."""
    say(f"rewardspec: {message}", err=True)
    raise typer.Exit(2)


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
