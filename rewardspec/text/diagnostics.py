"""Messages to the user: what is wrong, where, and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypedDict, Unpack

from rewardspec.text.shown import shown
from rewardspec.text.source import Span

MOST_DIAGNOSTICS = 100  # a hostile file must not buy unbounded output


@dataclass(frozen=True)
class Label:
    """A second place that a message is about."""

    span: Span
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shown(self.message))


@dataclass(frozen=True)
class Diagnostic:
    """One finding. `code` is kebab-case and stable; `severity` is `error`, `warning` or `note`."""

    code: str
    message: str
    span: Span
    help: str | None = None
    labels: tuple[Label, ...] = ()
    note: str = ""  # stands beside the underline
    severity: str = "error"

    def __post_init__(self) -> None:  # a frozen one; what it quotes is a spec's
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
    """File, lines and columns of a span; the last column is the one after it."""
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
    """What a diagnostic can say besides."""

    help: str | None
    labels: tuple[Label, ...]
    note: str


@dataclass
class Report:
    """Collects diagnostics; every stage adds to it and goes on."""

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
    """An error that other processes can send here, whatever it is made from.

    Python would make it anew from its message: where that fails, who waits for the process waits for ever.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[Exception], arguments: tuple[object, ...], state: dict[str, object]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class SpecError(Portable, ValueError):
    """A spec that cannot be used. `diagnostics` holds everything found in it."""

    def __init__(self, diagnostics: list[Diagnostic]):
        self.diagnostics = diagnostics
        super().__init__("\n\n".join(d.render() for d in diagnostics))


def shorten(text: str, most: int = 40) -> str:
    """`text` on one line and within `most` characters, for use inside a message."""
    text = shown(" ".join(text.split()))
    return text if len(text) <= most else text[: most - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if any is near."""
    if len(name) > 80:
        return None
    known = list(known)
    for like in (str.lower, sorted):  # another case, letters swapped
        same = [k for k in known if like(k) == like(name)]
        if same:
            return same[0]
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A help line that names the nearest known name, or `otherwise`."""
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else otherwise
