"""`Page`: what the manual says about one name, as Markdown. `Kind`: the names that share a form of page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """A page. kind: the name of its `Kind`. name: as a spec or a command writes it. body: Markdown without a heading.

    related: names of other pages that it is about as well, as (kind, name).
    """

    kind: str
    name: str
    body: str
    related: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """Where a site keeps it, below its root: `schemes/grpo.md`, `specs/gdpo/math.md`."""
        return f"{self.kind}s/{self.name}.md"

    @property
    def title(self) -> str:
        """The first line of the body: what the name is."""
        return self.body.partition("\n")[0]

    @property
    def markdown(self) -> str:
        """The page with a heading, for a site. Related pages are linked by relative paths."""
        up = "../" * (1 + self.name.count("/"))
        links = {(kind, name): f"[`{name}`]({up}{Page(kind, name, '').path})" for kind, name in self.related}
        return f"# `{self.name}`\n\n{paragraphs(self.body, self._see(links))}\n"

    @property
    def text(self) -> str:
        """The page with a heading, for a terminal."""
        names = {(kind, name): f"`{name}`" for kind, name in self.related}
        return f"# {self.name} ({self.kind})\n\n{paragraphs(self.body, self._see(names))}"

    def _see(self, written: Mapping[tuple[str, str], str]) -> str | None:
        """The related pages, a line for each kind."""
        kinds = dict.fromkeys(kind for kind, _ in self.related)
        lines = [f"- {kind}s: {', '.join(text for key, text in written.items() if key[0] == kind)}" for kind in kinds]
        return "\n".join(["See also:", "", *lines]) if lines else None


@dataclass(frozen=True)
class Kind:
    """Pages of one form. name: in the singular; `about`: one line. names: of all pages. page: the page of a name."""

    name: str
    about: str
    names: Callable[[], Sequence[str]]
    page: Callable[[str], Page]


def paragraphs(*parts: str | None) -> str:
    """The parts that are there, with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part)


def sentence(text: str) -> str:
    """A text that begins with a capital and ends with a full stop, unless it begins with code or ends with a sign."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', ':')) else '.'}"


def fenced(text: str, language: str = "yaml") -> str:
    """A text as a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str | None:
    """A table in Markdown; None if it has no rows."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines]) if lines else None


def listed(items: Mapping[str, str]) -> str | None:
    """Names in code, each with what it means, as a list; None if there are none."""
    return "\n".join(f"- `{name}`: {about}" for name, about in items.items()) or None
