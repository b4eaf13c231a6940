"""Untrusted text, made safe to print.

Names, completions, file names and the replies of endpoints can contain escape sequences that change a terminal, marks
that change the direction of text, line breaks, and commands to a CI system. All of it is printed through this module.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TextIO

_COLOURS = r"(?:\s|\x1b\[[0-9;]*m)*"  # allowed before a command, or printed by us before a text
_COMMAND = re.compile(rf"^({_COLOURS}):(?=:)", re.MULTILINE)  # `::error::`, of GitHub
_BRACKET = re.compile(r"#(?=#\w*\[)")  # `##[error]` of GitHub, `##vso[` of Azure, `##teamcity[`, anywhere in a line


def shown(text: object) -> str:
    """A text on one line of visible characters; others are escaped: `\\x1b`, `\\u202e`, `\\n`."""
    text = str(text)
    return text if text.isprintable() else "".join(map(_seen, text))


def _seen(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":  # spaces of other widths
        return char
    return char.encode("unicode_escape").decode()


def printed(text: str) -> str:
    """Our own lines with untrusted text in them, safe to print."""
    return inert("\n".join(map(shown, text.split("\n"))))


def inert(text: str) -> str:
    """Lines with every CI command escaped: `\\::error::`, `#\\#[error]`."""
    return _BRACKET.sub(r"#\\", _COMMAND.sub(r"\1\\:", text))


def inert_json(text: str) -> str:
    """ASCII JSON of the same value, without a CI command."""
    return _BRACKET.sub(r"\\u0023", text)


class Inert:
    """A stream that escapes CI commands, for programs that format lines themselves."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(inert(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
