"""Text that others wrote, as it is printed: all of it goes through here.

Names, completions, file names and what an endpoint answers can hold escape sequences that change a terminal, marks
that turn the direction of text, line breaks that begin a line of their own, and what a CI system takes for commands.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TextIO

_COLOURS = r"(?:\s|\x1b\[[0-9;]*m)*"  # what may stand before a command, or what we print before a text
_COMMAND = re.compile(rf"^({_COLOURS}):(?=:)", re.MULTILINE)  # `::error::`, of GitHub
_BRACKET = re.compile(r"#(?=#\w*\[)")  # `##[error]` of GitHub, `##vso[` of Azure, `##teamcity[`, anywhere in a line


def shown(text: object) -> str:
    """A text on one line, of characters that are seen; others are escaped, such as `\\x1b`, `\\u202e`, `\\n`."""
    text = str(text)
    return text if text.isprintable() else "".join(map(_seen, text))


def _seen(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":  # spaces of other widths
        return char
    return char.encode("unicode_escape").decode()


def printed(text: str) -> str:
    """Lines of ours, with text of others in them, as they can be printed anywhere."""
    return inert("\n".join(map(shown, text.split("\n"))))


def inert(text: str) -> str:
    """Lines in which nothing is a command to a CI system: `\\::error::`, `#\\#[error]`."""
    return _BRACKET.sub(r"#\\", _COMMAND.sub(r"\1\\:", text))


def inert_json(text: str) -> str:
    """JSON in ASCII, the same to whoever reads it, and no command to a CI system."""
    return _BRACKET.sub(r"\\u0023", text)


class Inert:
    """A stream on which nothing becomes a command, for programs that lay out lines themselves."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(inert(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
