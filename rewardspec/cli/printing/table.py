"""Tables, formatted by rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, cast

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewardspec.text.shown import Inert, shown


def console(stderr: bool = False) -> Console:
    """The console for tables, 200 columns wide if it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    return Console(file=cast(IO[str], Inert(stream)), width=width, soft_wrap=False)


def table(out: Console, title: str | None, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns of numbers are right-aligned."""
    if title:
        out.print(shown(title), style="bold", markup=False, highlight=False)
    drawn = Table(box=SIMPLE, pad_edge=False)
    for head in heads:
        at = heads.index(head)
        numeric = rows and all(row[at][:1].isdigit() or row[at][:2] == ">=" for row in rows)
        drawn.add_column(Text(shown(head)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(shown(cell)) for cell in row))
    out.print(drawn)
