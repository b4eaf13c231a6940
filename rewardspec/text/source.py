"""Sources, and spans: places in them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from rewardspec.text.shown import shown


@dataclass(frozen=True, eq=False)
class Source:
    """A text and its name: a path, or `<spec>`."""

    name: str
    text: str = field(repr=False)

    @cached_property
    def line_starts(self) -> list[int]:
        starts = [0]
        starts += [i + 1 for i, char in enumerate(self.text) if char == "\n"]
        return starts

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset; past the end counts as the end."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self.line_starts, offset) - 1
        return line + 1, offset - self.line_starts[line] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its line break."""
        start = self.line_starts[number - 1]
        end = self.line_starts[number] - 1 if number < len(self.line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def span(self, start: int, end: int) -> Span:
        return Span(self, start, end)


@dataclass(frozen=True)
class Span:
    """The characters `start` to `end` (exclusive) of a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def place(self) -> str:
        """`file:line:column`, which editors and terminals link."""
        line, column = self.source.line_column(self.start)
        return f"{shown(self.source.name)}:{line}:{column}"

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of another in the same source."""
        return Span(self.source, self.start, other.end)
