"""The text of a spec in an editor, and what is known of it. Each fact is computed once, when it is first needed."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from rewardspec.editor.names import Names, names_of
from rewardspec.ir.stack import deep_stack
from rewardspec.language.declarations import Declarations
from rewardspec.language.outline import Entry, outline
from rewardspec.language.reader import read_declarations
from rewardspec.resources import resource
from rewardspec.spec import Spec, check
from rewardspec.text.diagnostics import Diagnostic, Report
from rewardspec.text.source import Source

MOST_BLANKED = 8  # lines that are left out, one after the other, of a file that is no YAML

_BREAK = re.compile("\r\n?")
_VERSION = re.compile(r"^[\"']?rewardspec[\"']?[ \t]*:", re.MULTILINE)


class Document:
    """One version of a text. `name`: as diagnostics show it. line_break: what ends its lines in the editor."""

    def __init__(self, text: str, name: str = "<spec>"):
        self.text = _BREAK.sub("\n", text)
        self.line_break = "\r\n" if "\r\n" in text else "\n"
        self.source = Source(name, self.text)

    @property
    def is_spec(self) -> bool:
        """Whether it is a spec: it has the key `rewardspec`, and is none of the files of definitions that ship."""
        return _VERSION.search(self.text) is not None and not _is_shipped(self.source.name)

    @property
    def may_become_spec(self) -> bool:
        """Whether it has no key yet, so that a spec could begin here."""
        return all(entry.partial or entry.path == ("-",) for entry in self.outline.entries)

    @cached_property
    def outline(self) -> Entry:
        return outline(self.text)

    @cached_property
    def names(self) -> Names:
        return names_of(self.text, self.outline)

    @cached_property
    def checked(self) -> tuple[Spec | None, list[Diagnostic]]:
        """The spec, None if it has errors, and the errors."""
        spec, report = check(self.source)
        return spec, [self._at_its_cause(one) if one.code == "yaml" else one for one in report.sorted()]

    def _at_its_cause(self, one: Diagnostic) -> Diagnostic:
        """A YAML error at the word, bracket or quote that causes it; the reader often names the line after it."""
        for entry in reversed([entry for entry in self.broken if entry.start <= one.span.start]):
            if entry.partial == ("no `:`" in one.message):
                start = entry.start if entry.value is None else entry.value[0]
                if entry.bracket:
                    start = self.text.find(entry.bracket, entry.key[1] if entry.key is not None else start)
                end = min(entry.end, start + len(self.text[start:].partition("\n")[0]))
                return replace(one, span=self.source.span(start, max(start + 1, end)))
        return one

    @cached_property
    def broken(self) -> list[Entry]:
        """The entries that are not whole: words without a `:`, brackets and quotes that are not closed."""
        return [
            one
            for one in self.outline.walk()
            if one.partial or not one.closed or (one.value is not None and _is_open(self.text[slice(*one.value)]))
        ]

    @cached_property
    def declared(self) -> Declarations | None:
        """The declarations as far as they can be read; lines that break the YAML are left out. None for no spec."""
        spec, _ = self.checked
        if spec is not None:
            return spec.declarations
        text = self.text
        for _ in range(MOST_BLANKED):
            report = Report()
            with deep_stack():
                found = read_declarations(Source(self.source.name, text), report)
            if found is not None:
                return found
            text = self._blanked(text, report)
        return None

    def _blanked(self, text: str, report: Report) -> str:
        """The text with spaces in place of what does not read: words that are no keys yet, or the line of the error."""
        if text == self.text:
            for one in self.broken:
                text = text[: one.start] + _spaces(text[one.start : one.end]) + text[one.end :]
            if text != self.text:
                return text
        line, _ = self.source.line_column(report.diagnostics[0].span.start if report.diagnostics else 0)
        while line > 1 and not self.source.line(line).strip():
            line -= 1
        start = self.source.line_starts[line - 1]
        end = start + len(self.source.line(line))
        return text[:start] + _spaces(text[start:end]) + text[end:]

    def entry_at(self, offset: int) -> Entry | None:
        """The innermost entry around an offset."""
        found: Entry | None = None
        for entry in self.outline.walk():
            if entry.start <= offset <= entry.end and (found is None or entry.start >= found.start):
                found = entry
        return found


def _is_shipped(name: str) -> bool:
    """Whether a file is the prelude or a dialect, to which "go to definition" leads."""
    path, specs = Path(name), resource("specs")
    return path == specs / "prelude.yaml" or path.parent == specs / "dialects"


def _is_open(value: str) -> bool:
    """Whether a value begins with a quote and does not end with it."""
    return value[:1] in ("'", '"') and (len(value) < 2 or value[-1] != value[0])


def _spaces(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)
