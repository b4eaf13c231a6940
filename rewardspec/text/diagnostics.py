"""Diagnostics: the problem, its place, and the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from rewardspec.text.shown import shown
from rewardspec.text.source import Span

MOST_DIAGNOSTICS = 100  # a hostile file cannot produce unbounded output


@dataclass(frozen=True)
class Label:
    """A second place of a diagnostic, with a text about it."""

    span: Span
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shown(self.message))


@dataclass(frozen=True)
class Diagnostic:
    """A message with its place. `code` is kebab-case and stable; `severity` is `error`, `warning` or `note`."""

    code: str
    message: str
    span: Span
    help: str | None = None
    labels: tuple[Label, ...] = ()
    note: str = ""  # the label next to the underline
    severity: str = "error"

    def __post_init__(self) -> None:  # the texts quote the spec, which is untrusted
        for name in ("message", "help", "note"):
            if getattr(self, name):
                object.__setattr__(self, name, shown(getattr(self, name)))

    def to_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            **_region(self.span),
            "note": self.note or None,
            "labels": [{"message": label.message, **_region(label.span)} for label in self.labels],
            "help": self.help,
        }

    def render(self) -> str:
        """The message with its lines of the file, underlined, as a terminal shows it."""
        if self.severity == "note":
            return f"{self.code.replace('-', ' ')}: {self.message}"
        source = self.span.source
        places = [(self.span, "^", self.note)] + [
            (label.span, "-", label.message) for label in self.labels if label.span.source is source
        ]
        places.sort(key=lambda place: place[0].start)
        gutter = len(str(max(source.line_column(span.start)[0] for span, _, _ in places)))
        out = [f"{self.severity}[{self.code}]: {self.message}"]
        out.append(f"{' ' * gutter}--> {self.span.place()}")
        out.append(f"{' ' * gutter} |")
        shown = None
        for span, mark, message in places:
            number, start = source.line_column(span.start)
            text = source.line(number)
            if number != shown:
                out.append(f"{number:>{gutter}} | {_visible(text)}")
                shown = number
            end_number, end = source.line_column(span.end)
            end = end if end_number == number else len(text) + 1
            width = max(1, min(end, len(text) + 1) - start)
            if start + width > _WIDEST:
                width = max(1, _WIDEST - start)
            out.append(f"{' ' * gutter} | {' ' * (min(start, _WIDEST) - 1)}{mark * width} {message}".rstrip())
        out += [
            f"{' ' * gutter} = {label.message}: {label.span.place()}"
            for label in self.labels
            if label.span.source is not source
        ]
        if self.help:
            out.append(f"help: {self.help}")
        return "\n".join(out)


def _region(span: Span) -> dict[str, object]:
    """File, lines and columns of a span; `end_column` is exclusive."""
    line, column = span.source.line_column(span.start)
    end_line, end_column = span.source.line_column(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }


_WIDEST = 160


def _visible(line: str) -> str:
    line = line[:_WIDEST] + ("..." if len(line) > _WIDEST else "")
    return "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in line)


class Rest(TypedDict, total=False):
    """The optional parts of a diagnostic."""

    help: str | None
    labels: tuple[Label, ...]
    note: str


@dataclass
class Report:
    """The diagnostics so far; every stage adds to them and continues."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    _seen: set[tuple[str, str, int, str]] = field(default_factory=set)

    def add(self, diagnostic: Diagnostic) -> None:
        key = (diagnostic.code, diagnostic.span.source.name, diagnostic.span.start, diagnostic.message)
        if key not in self._seen and len(self.diagnostics) < MOST_DIAGNOSTICS:
            self._seen.add(key)
            self.diagnostics.append(diagnostic)

    def error(self, code: str, message: str, span: Span, **rest: Unpack[Rest]) -> None:
        self.add(Diagnostic(code, message, span, **rest))

    def warning(self, code: str, message: str, span: Span, **rest: Unpack[Rest]) -> None:
        self.add(Diagnostic(code, message, span, severity="warning", **rest))

    @property
    def failed(self) -> bool:
        return any(d.severity == "error" for d in self.diagnostics)

    def sorted(self) -> list[Diagnostic]:
        return sorted(self.diagnostics, key=lambda d: (d.span.source.name, d.span.start, d.code))


class Portable(Exception):
    """An exception that can be pickled and sent between processes, whatever the arguments of its `__init__`.

    Python would call `__init__` with the message alone; if that fails, the receiving process hangs.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[Exception], arguments: tuple[object, ...], state: dict[str, object]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class SpecError(Portable, ValueError):
    """Raised for a spec with errors. `diagnostics`: all that were found."""

    def __init__(self, diagnostics: list[Diagnostic]):
        self.diagnostics = diagnostics
        super().__init__("\n\n".join(d.render() for d in diagnostics))


def shorten(text: str, most: int = 40) -> str:
    """`text` on one line of at most `most` characters, for use in a message."""
    text = shown(" ".join(text.split()))
    return text if len(text) <= most else text[: most - 3] + "..."


def nearest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name most similar to `name`; None if none is near. least: the share of equal characters, about."""
    if len(name) > 80:
        return None
    known = list(known)
    for like in (str.lower, sorted):  # another case, letters swapped
        same = [k for k in known if like(k) == like(name)]
        if same:
            return same[0]
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=least)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The help ``did you mean `...`?`` with the nearest known name, else `otherwise`."""
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else otherwise
