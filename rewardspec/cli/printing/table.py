"""Tables of text that fit the terminal, or the COLUMNS of the environment, without broken words.

A table that is too wide wraps its cells at spaces. Where even the longest words do not fit, the first column goes onto
lines of its own, and the rest stays a table; where that does not fit either, each row becomes a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TextIO

from rewardspec.cli.printing.terminal import rule, stream, styled, wide, width, wrapped
from rewardspec.text.shown import Inert, shown

GAP = 2  # spaces between columns, and before rows below the cell that they have in common
_NUMBER = re.compile(r"(?:[<>]= )?-?[\d.,]*\d%?(?:e[+-]\d+)?(?:\.\.\d+)?|-?")


@dataclass(frozen=True)
class Console:
    """Where tables are printed: a stream with a width."""

    stream: TextIO
    width: int

    def print(self, text: str = "") -> None:
        """Print one line; an escape sequence in it must be ours."""
        print(text, file=Inert(self.stream))


def console() -> Console:
    """Standard output."""
    return Console(stream(), width())


def table(
    out: Console,
    title: str | None,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str] = {},
) -> None:
    """Print a table; columns of numbers are right-aligned. styles: of cells with a text, such as `refuted`: `red`."""
    if title:
        out.print(styled(shown(title), "bold"))
    seen = [[shown(cell) for cell in row] for row in rows]
    for line in laid_out([shown(head) for head in heads], seen, out.width, styles):
        out.print(line)


def laid_out(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, styles: Mapping[str, str] = {}
) -> list[str]:
    """The lines of a table at most `width` wide, if no word is wider."""
    if (whole := _set(heads, rows, width, styles)) is not None:
        head, found = whole
        return ["", *head, *(line for lines in found for line in lines), ""]
    return _in_sections(heads, rows, width, styles) or _as_lists(heads, rows, width)


def _set(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, styles: Mapping[str, str]
) -> tuple[list[str], list[list[str]]] | None:
    """The lines of the head, and those of each row, in columns; None if they do not fit."""
    columns = [list(column) for column in zip(heads, *rows, strict=True)]
    least = [max((wide(word) for cell in column for word in cell.split()), default=0) for column in columns]
    most = [max(map(wide, column)) for column in columns]
    room = width - 1 - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    widths = most if sum(most) <= room else _shared(least, most, room)
    right = [any(column[1:]) and all(map(_NUMBER.fullmatch, column[1:])) for column in columns]

    def lines_of(row: Sequence[str], head: bool = False) -> list[str]:
        cells = [wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        found = []
        for i in range(max(map(len, cells))):
            parts = []
            for cell, size, at_right, whole in zip(cells, widths, right, row, strict=True):
                text = cell[i] if i < len(cell) else ""
                space = " " * (size - wide(text))
                style = "bold" if head else styles.get(whole, "")
                parts.append(f"{space}{styled(text, style)}" if at_right else f"{styled(text, style)}{space}")
            found.append(f" {(' ' * GAP).join(parts)}".rstrip())
        return found

    ruled = " " + rule() * (sum(widths) + GAP * (len(widths) - 1))
    return ([*lines_of(heads, head=True), ruled] if any(heads) else []), [lines_of(row) for row in rows]


def _in_sections(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, styles: Mapping[str, str]
) -> list[str]:
    """A table of all columns but the first, whose cells stand above the rows that have them; empty if too wide."""
    rest = _set(heads[1:], [row[1:] for row in rows], width - GAP, styles) if len(heads) > 1 else None
    if rest is None:
        return []
    head, found = rest

    def first(cell: str, style: str) -> list[str]:
        return [f" {styled(line, style)}" for line in wrapped(cell, width - 1)] if cell else []

    lines = ["", *first(heads[0], "bold"), *(f"{' ' * GAP}{line}" for line in head)]
    above = None
    for row, parts in zip(rows, found, strict=True):
        if row[0] != above:
            lines += first(row[0], styles.get(row[0], "bold"))
        above = row[0]
        lines += [f"{' ' * GAP}{line}".rstrip() for line in parts]
    return [*lines, ""]


def _shared(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths between least and most that fit the room, whose rest is shared out by what each lacks."""
    lacks = [m - n for n, m in zip(least, most, strict=True)]
    rest = room - sum(least)
    widths = [n + rest * lack // sum(lacks) for n, lack in zip(least, lacks, strict=True)]
    widths[lacks.index(max(lacks))] += room - sum(widths)
    return widths


def _as_lists(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Each row as a list of its cells, with their heads before them."""
    longest = max((wide(word) for row in rows for cell in row[1:] for word in cell.split()), default=0)
    labels = min(max(map(wide, heads[1:]), default=0), max(width - 5 - longest, width // 3))
    found = [""]
    for row in rows:
        found += [f" {styled(line, 'bold')}" for line in wrapped(f"{heads[0]} {row[0]}".strip(), width - 1)]
        for head, cell in zip(heads[1:], row[1:], strict=True):
            both = wrapped(head, labels), wrapped(cell, max(width - labels - 5, 1))
            for label, line in zip_longest(*both, fillvalue="") if cell else ():
                found.append(f"   {label}{' ' * (labels - wide(label))}  {line}".rstrip())
        found.append("")
    return found
