"""YAML text to nodes with their places.

A spec uses the plain part of YAML: mappings, sequences and scalars, which stay text (`no` is a name, `1e-4` is
parsed as an expression). Anchors, aliases, merge keys, tags and second documents are errors, so that no file can grow
when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeGuard

from ruamel.yaml import YAML
from ruamel.yaml import events as yaml_events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from rewardspec.syntax.expression import parse_expression, parse_signature
from rewardspec.text.diagnostics import Label, Report, shorten
from rewardspec.text.source import Source, Span

LARGEST_FILE = 64 * 1024
MOST_EVENTS = 10_000
DEEPEST = 16
LONGEST_QUOTED = 120


@dataclass(frozen=True, eq=False)
class Scalar:
    """A piece of text. `style` is None (plain), `'`, `"`, `|` or `>`."""

    span: Span
    text: str
    style: str | None = None
    cut: bool = False  # a comma cut it in two: reported already

    def slice(self) -> tuple[str, int] | None:
        """The text as written in the file, and its offset there; None if it contains escapes."""
        raw, start = self.span.text, self.span.start
        if self.style is None:
            return raw, start
        if self.style in "|>":
            header = raw.find("\n") + 1
            return raw[header:], start + header
        body = raw[1:-1]
        escapes = "\\" in body if self.style == '"' else "''" in body
        return None if escapes else (body, start + 1)


@dataclass(frozen=True, eq=False)
class Sequence:
    """A list. flow: written in `[ ]`."""

    span: Span
    items: tuple[Node, ...]
    flow: bool = False


@dataclass(frozen=True, eq=False)
class Mapping:
    """A mapping, in the order of the file. flow: written in `{ }`."""

    span: Span
    items: tuple[tuple[Scalar, Node], ...]
    flow: bool = False

    def key(self, name: str) -> Scalar | None:
        return next((key for key, _ in self.items if key.text == name), None)

    def get(self, name: str) -> Node | None:
        return next((value for key, value in self.items if key.text == name), None)


Node = Scalar | Sequence | Mapping


class _Stop(Exception):
    """Reading stops; the reason is in the report."""


def read_yaml(source: Source, report: Report) -> Mapping | None:
    """The root mapping of a file, or None with the reasons in `report`."""
    everything = source.span(0, min(len(source.text), 1))
    if len(source.text) > LARGEST_FILE:
        report.error("too-large", f"the spec is larger than {LARGEST_FILE // 1024} KiB", everything)
        return None
    reader = _Reader(source, report)
    try:
        return reader.document()
    except _Stop:
        return None
    except ReaderError as error:
        at = error.position if isinstance(error.position, int) else 0
        report.error("yaml", "YAML does not allow this character", source.span(at, at + 1))
    except MarkedYAMLError as error:
        _explain(error, source, report)
    except (YAMLError, ValueError, OverflowError) as error:
        report.error("yaml", f"not YAML: {shorten(str(error), 80)}", everything)
    return None


@dataclass
class _Reader:
    """The events of one file, taken one after another; `count` is limited."""

    source: Source
    report: Report
    count: int = 0
    events: Iterator[yaml_events.Event] = field(init=False)
    last: yaml_events.Event = field(init=False)

    def __post_init__(self) -> None:
        self.events = YAML(typ="safe", pure=True).parse(self.source.text)

    def next(self) -> yaml_events.Event:
        self.count += 1
        if self.count > MOST_EVENTS:
            self.stop("too-large", f"the spec has more than {MOST_EVENTS} keys and values", self.here())
        event = next(self.events)
        if getattr(event, "anchor", None) is not None:
            word = "an alias (`*`)" if isinstance(event, yaml_events.AliasEvent) else "an anchor (`&`)"
            self.stop(
                "yaml",
                f"{word} is not allowed in a spec",
                self.span(event),
                help="quote an expression that begins with `*` or `&`" if "alias" in word else "write the value out",
            )
        tag = getattr(event, "tag", None)
        if tag is not None and not isinstance(event, yaml_events.DocumentStartEvent):
            self.stop("yaml", "a tag (`!`) is not allowed in a spec", self.span(event), help="write the value alone")
        self.last = event
        return event

    def here(self) -> Span:
        end = self.last.end_mark.index
        return self.source.span(max(0, end - 1), end)

    def span(self, event: yaml_events.Event) -> Span:
        start, end = event.start_mark.index, event.end_mark.index
        return self.source.span(start, max(end, start + 1))

    def stop(self, code: str, message: str, span: Span, help: str | None = None) -> NoReturn:
        self.report.error(code, message, span, help=help)
        raise _Stop

    def document(self) -> Mapping:
        self.last = next(self.events)  # the start of the stream
        event = self.next()
        if isinstance(event, yaml_events.StreamEndEvent):
            self.stop(
                "empty",
                "the spec is empty",
                self.source.span(0, min(1, len(self.source.text))),
                help="begin with `rewardspec: 1`",
            )
        node = self.node(self.next(), 0)
        self.next()  # the end of the document
        event = self.next()
        if not isinstance(event, yaml_events.StreamEndEvent):
            self.stop("yaml", "the file has a second document", self.span(event), help="write one spec per file")
        if not isinstance(node, Mapping):
            self.stop(
                "wrong-type", "expected a mapping of keys to values", node.span, help="begin with `rewardspec: 1`"
            )
        return node

    def node(self, event: yaml_events.Event, depth: int) -> Node:
        if depth > DEEPEST:
            self.stop("too-deep", f"the spec is nested more than {DEEPEST} deep", self.span(event))
        if isinstance(event, yaml_events.ScalarEvent):
            return self.scalar(event)
        start = event.start_mark.index
        if isinstance(event, yaml_events.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := self.next(), yaml_events.SequenceEndEvent):
                items.append(self.node(event, depth + 1))
            return Sequence(self.between(start, event), self.whole(items), event_flow(self.source, start))
        return self.mapping(event, depth)

    def scalar(self, event: yaml_events.ScalarEvent) -> Scalar:
        start, end = event.start_mark.index, event.end_mark.index
        text = self.source.text[start:end]
        if event.style not in ("|", ">"):
            end = start + len(text.rstrip())
        span, value = self.source.span(start, end), str(event.value)
        if any("\ud800" <= char <= "\udfff" for char in value):
            self.report.error("yaml", "an unpaired surrogate is not a character", span)
            value = "".join("?" if "\ud800" <= char <= "\udfff" else char for char in value)
        return Scalar(span, value, event.style or None)

    def between(self, start: int, event: yaml_events.Event) -> Span:
        text = self.source.text[start : event.end_mark.index]
        return self.source.span(start, start + max(1, len(text.rstrip())))

    def mapping(self, event: yaml_events.Event, depth: int) -> Mapping:
        start = event.start_mark.index
        flow = event_flow(self.source, start)
        items: list[tuple[Scalar, Node]] = []
        seen: dict[str, Scalar] = {}
        torn = None
        while not isinstance(event := self.next(), yaml_events.MappingEndEvent):
            key = self.node(event, depth + 1)
            value = self.node(self.next(), depth + 1)
            if not isinstance(key, Scalar):
                self.report.error("wrong-type", "a key must be a single value", key.span)
                continue
            if torn is not None and _closes(key.text):
                self.comma(torn[0], parse_signature)
                span = self.source.span(torn[0].span.start, key.span.end)
                key, torn = Scalar(span, span.text), None
            elif torn is not None and _is_empty(value):
                continue
            elif torn is not None:  # never closed
                items.append(torn)
                torn = None
            last = items[-1] if flow and items else None
            if last is not None and _unclosed(last[1]):
                if _is_empty(value):  # the rest of an expression that a comma cut in two
                    self.comma(last[1], parse_expression)
                    items[-1] = (last[0], self.rejoined(last[1], key))
                    continue
            elif flow and _unclosed(key) and _is_empty(value):  # perhaps `half(x, y)`, the left of a definition
                torn = key, value
                continue
            if key.text == "<<":
                self.report.error("yaml", "a merge key is not allowed in a spec", key.span, help="write the keys out")
            elif key.text in seen:
                self.report.error(
                    "duplicate-key",
                    f"the key `{shorten(key.text)}` appears twice",
                    key.span,
                    labels=(Label(seen[key.text].span, "first here"),),
                    help="keep one of them",
                )
            else:
                seen[key.text] = key
                items.append((key, value))
        items += [torn] if torn is not None else []
        return Mapping(self.between(start, event), tuple(items), flow)

    def whole(self, items: list[Node]) -> tuple[Node, ...]:
        """The items of a sequence; expressions that a comma cut are reported and joined again."""
        kept: list[Node] = []
        for item in items:
            if kept and _unclosed(kept[-1]) and isinstance(item, Scalar):
                self.comma(kept[-1], parse_expression)
                kept[-1] = self.rejoined(kept[-1], item)
            else:
                kept.append(item)
        return tuple(kept)

    def rejoined(self, cut: Scalar, rest: Scalar) -> Scalar:
        """A value joined with the rest that a comma cut off."""
        return replace(cut, text=f"{cut.text}, {rest.text}", cut=True)

    def comma(self, cut: Scalar, parse: Callable[[str, Callable[[int, int], Span], Report], object]) -> None:
        """Report a value that a comma cut; the help quotes it whole if `parse` accepts that."""
        whole = self.to_its_end(cut.span.start)
        reads = whole is not None and parse(whole, lambda start, end: cut.span, Report()) is not None
        quoted = f'it: `"{whole}"`' if reads else "all of it"
        self.report.error(
            "yaml-comma",
            "inside `{ }` and `[ ]` a comma ends the YAML value",
            cut.span,
            help=f"quote {quoted}, or use the block form, one key per line",
        )

    def to_its_end(self, start: int) -> str | None:
        """The text from `start` to the end of the value outside parentheses; None if it is long or quoted."""
        text, depth = self.source.text, 0
        for end in range(start, min(start + LONGEST_QUOTED, len(text))):
            char = text[end]
            depth += (char == "(") - (char == ")")
            if char in '"\n' or depth < 0:
                return None
            if depth == 0 and char in ",:]}":
                return text[start:end].rstrip()
        return None


def event_flow(source: Source, start: int) -> bool:
    """Whether a mapping or sequence is written with `{ }` or `[ ]`."""
    return source.text[start : start + 1] in ("{", "[")


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.style is None and not node.text


def _unclosed(node: Node) -> TypeGuard[Scalar]:
    return isinstance(node, Scalar) and node.style is None and node.text.count("(") > node.text.count(")")


def _closes(text: str) -> bool:
    return text.count(")") > text.count("(")


def _explain(error: MarkedYAMLError, source: Source, report: Report) -> None:
    mark = error.problem_mark or error.context_mark
    at = min(mark.index if mark else 0, max(len(source.text) - 1, 0))
    problem = (error.problem or error.context or "").strip()
    line, column = source.line_column(at)
    before = source.line(line)[: column - 1]
    char = source.text[at : at + 1]
    if char == "\t" or (not before.strip() and "\t" in before):
        at -= 0 if char == "\t" else len(before) - before.index("\t")
        message, help = "YAML does not allow a tab here", "indent with spaces"
    elif "mapping values are not allowed" in problem:
        message = "a second `:` on one line"
        help = "quote a text that contains `: `; for a key, check the indentation"
    elif "found character" in problem and "cannot start any token" in problem:
        message, help = f"a YAML value cannot begin with `{char}`", "quote it"
    elif "expected <block end>" in problem or "did not find expected" in problem:
        message, help = "this is not aligned with the lines above", "indent keys of one level equally"
    elif "undefined alias" in problem:
        message, help = "an alias (`*`) is not allowed in a spec", "quote an expression that begins with `*`"
    elif "flow" in (error.context or "") or "flow" in problem:
        message, help = "a `{` or `[` is not closed, or a comma is missing", "close it, or use the block form"
    elif "quoted scalar" in (error.context or ""):
        message, help = "a quote is not closed", "close it, or remove the quotes"
    elif "could not find expected ':'" in problem:
        message, help = "this key has no `:`", "write `key: value`"
        at = error.context_mark.index if error.context_mark else at  # where the key begins, not where the next one ends
    else:
        message, help = f"not YAML: {shorten(problem, 80)}", None
    report.error("yaml", message, source.span(at, at + 1), help=help)


def comment_after(span: Span) -> Span | None:
    """The comment on the line where `span` ends, None if there is none: it may have cut an expression."""
    text, at = span.source.text, span.end
    end = text.find("\n", at)
    rest = text[at : end if end >= 0 else len(text)]
    if rest.lstrip().startswith("#"):
        return span.source.span(at + rest.index("#"), at + len(rest.rstrip()))
    return None
