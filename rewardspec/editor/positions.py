"""Offsets in characters, and the positions of the protocol: a line, and units of an encoding before the place."""

from __future__ import annotations

from rewardspec.text.source import Source

Place = tuple[int, int]  # line and unit, both from 0

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"


def position(source: Source, offset: int, encoding: str = UTF16) -> Place:
    """The line and unit of an offset. An offset after the end is the end."""
    line, column = source.line_column(offset)
    return line - 1, units(
        source.text[source.line_starts[line - 1] : source.line_starts[line - 1] + column - 1], encoding
    )


def offset(source: Source, line: int, unit: int, encoding: str = UTF16) -> int:
    """The offset of a line and unit. A place after the end of its line is that end; within a character, its start."""
    if line < 0 or line >= len(source.line_starts):
        return 0 if line < 0 else len(source.text)
    text = source.line(line + 1)
    if text.isascii():
        return source.line_starts[line] + max(0, min(unit, len(text)))
    at = 0
    for i, char in enumerate(text):
        at += units(char, encoding)
        if at > unit:
            return source.line_starts[line] + i
    return source.line_starts[line] + len(text)


def units(text: str, encoding: str) -> int:
    """How many units a text has."""
    if encoding == UTF32 or text.isascii():
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)
