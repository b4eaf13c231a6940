"""What the terminal can show: its width, colours, and progress.

Colours are for a terminal, never where `NO_COLOR` is set or TERM is `dumb`; `FORCE_COLOR` has them elsewhere, too.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from typing import TextIO

PIPED = 200  # the width where the output is no terminal and COLUMNS is not set
NARROWEST = 20
_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2"}


def stream(err: bool = False) -> TextIO:
    return sys.stderr if err else sys.stdout


def width() -> int:
    """The width of lines: COLUMNS, else that of the terminal, else 200."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return max(int(given), NARROWEST)
    return max(shutil.get_terminal_size().columns, NARROWEST) if sys.stdout.isatty() else PIPED


def rule() -> str:
    """The character that lines are drawn of, if the output has it."""
    try:
        "─".encode(stream().encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "-"
    return "─"


def has_colours(err: bool = False) -> bool:
    """Whether what is printed is coloured."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream(err).isatty()


def styled(text: str, style: str, err: bool = False) -> str:
    """The text with escape sequences for a style, such as `bold` or `red`, if what is printed is coloured."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text and has_colours(err) else text


_SEVERITIES = {"error": "red", "warning": "yellow", "note": "blue", "not checked": "dim"}
_PLACE = re.compile(r"^(\s*)(-->|\d+ \||\||=)( .*)?$")
_MARKS = re.compile(r"^(\s*\| *)([\^-]+.*)$")


def coloured(rendered: str, err: bool = False) -> str:
    """A rendered diagnostic, safe to print, with colours if what is printed is coloured."""
    if not has_colours(err):
        return rendered
    first, *rest = rendered.split("\n")
    severity = next((word for word in _SEVERITIES if first.startswith(word)), "")
    head, colon, message = first.partition(": ")
    lines = [styled(head, _SEVERITIES.get(severity, "bold"), err) + colon + styled(message, "bold", err)]
    for line in rest:
        if marks := _MARKS.match(line):
            colour = _SEVERITIES.get(severity, "red") if marks[2].startswith("^") else "blue"
            lines.append(styled(marks[1], "blue", err) + styled(marks[2], colour, err))
        elif line.startswith("help: "):
            lines.append(styled("help", "green", err) + line[4:])
        elif place := _PLACE.match(line):
            lines.append(place[1] + styled(place[2], "blue", err) + (place[3] or ""))
        else:
            lines.append(line)
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines, broken at spaces; a word that is wider than a line is broken."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and wide(lines[-1]) + 1 + wide(word) <= width:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        while wide(word) > width:
            cut = next(i for i in range(len(word), 0, -1) if wide(word[:i]) <= max(width, 2))
            lines[-1:] = [word[:cut], ""]
            word = word[cut:]
        lines[-1] = word
    return lines


def wide(text: str) -> int:
    """The columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)
