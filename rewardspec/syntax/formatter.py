"""The canonical format of a spec: indented by two, one space between words, comments kept in place."""

from __future__ import annotations

from rewardspec.syntax.expression import parse_expression
from rewardspec.syntax.tree import Expr, Number, format_expr, meaning
from rewardspec.syntax.yaml import Mapping, Node, Scalar, Sequence, read_yaml
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

_EXPRESSIONS = {"expr", "when", "otherwise", "weight", "add", "keep", "refill", "advantage"}

Path = tuple[str, ...]  # the keys that lead to a value; "-" for an item of a list


def formatted(source: Source, report: Report) -> str | None:
    """The text of a spec in canonical format; None if it does not parse (reasons in `report`).

    Only space changes, and redundant parentheses are removed: the keys, words and trees of expressions stay the same.
    Formatting is idempotent.
    """
    root = read_yaml(source, report)
    if root is None or report.failed:
        return None
    text = _indented(Source(source.name, _respaced(source, root)))
    again = read_yaml(Source(source.name, text), Report())
    if again is None or _content(again, ()) != _content(root, ()):  # unsafe to format: unchanged
        return source.text
    return text


# Within lines ------------------------------------------------------------------------------------


def _respaced(source: Source, root: Mapping) -> str:
    edits: list[tuple[int, int, str]] = []
    _edits(root, (), edits)
    text = source.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _edits(node: Node, path: Path, edits: list[tuple[int, int, str]]) -> None:
    """Collect the edits inside the lines of a node: (start, end, new text)."""
    if isinstance(node, Scalar) or node.flow:
        if "\n" not in node.span.text and "#" not in node.span.text:
            edits.append((node.span.start, node.span.end, _on_one_line(node, path)))
    elif isinstance(node, Sequence):
        for item in node.items:
            _edits(item, (*path, "-"), edits)
    else:
        for key, value in node.items:
            between = value.span.source.text[key.span.end : value.span.start]
            if value.span.text.strip() and between.strip() == ":" and "\n" not in between:
                edits.append((key.span.end, value.span.start, ": "))
            _edits(value, (*path, key.text), edits)


def _on_one_line(node: Node, path: Path) -> str:
    if isinstance(node, Scalar):
        return _scalar(node, path)
    if isinstance(node, Sequence):
        return "[" + ", ".join(_on_one_line(item, (*path, "-")) for item in node.items) + "]"
    parts = [f"{key.span.text}: {_on_one_line(value, (*path, key.text))}".rstrip() for key, value in node.items]
    return "{" + ", ".join(parts) + "}"


def _scalar(node: Scalar, path: Path) -> str:
    raw = node.span.text
    if node.style is not None or not raw or not _is_expression(path):
        return raw
    expr = _read(raw)
    if expr is None:
        return raw
    text = format_expr(expr, number=_number)
    if _words(text) != _words(raw):  # keep `a < b <= c`, which is two comparisons, and signs that cancel
        return raw
    again = _read(text)
    return raw if again is None or meaning(again) != meaning(expr) else text


def _read(text: str) -> Expr | None:
    return parse_expression(text, Source("", text).span, Report())


def _number(number: Number) -> str:
    """A number as written, with at most one sign, so that it binds as its value does."""
    return ("-" if number.value < 0 else "") + number.span.text.strip("+-() \t")


def _is_expression(path: Path) -> bool:
    match path:
        case ("define" | "guarantees", _) | ("condition", "label", _) | ("components", _):
            return True
        case ("state", _, "update"):
            return True
        case ("components", _, "stages" | "scale", "-"):
            return True
        case ("outcome" | "keep" | "refill" | "advantage",):
            return True
        case ("components", _, key) | ("components", _, "stages", "-", key):
            return key in _EXPRESSIONS
    return False


# Lines -------------------------------------------------------------------------------------------


def _indented(source: Source) -> str:
    root = read_yaml(source, Report())
    if root is None:
        return source.text
    wanted: dict[int, int] = {}  # line to indentation, for lines where a key or item begins
    inside: set[int] = set()  # lines that continue a value
    blocks: set[int] = set()  # lines of a block after `|` or `>`, where trailing space is part of the text
    _depths(root, 0, wanted, inside, blocks)
    lines = [line if i in blocks else line.rstrip() for i, line in enumerate(source.text.split("\n"))]
    moved: list[str] = []
    shift = 0
    for i, line in enumerate(lines):
        own = len(line) - len(line.lstrip(" "))
        if i in wanted:
            shift = wanted[i] - own
            line = _dashed(line)
        elif line.lstrip().startswith("#") and i not in inside:
            after = next((j for j in range(i + 1, len(lines)) if j in wanted), None)
            if after is not None and own == len(lines[after]) - len(lines[after].lstrip(" ")):
                moved.append(" " * wanted[after] + line.lstrip())
                continue
        moved.append(" " * max(0, own + shift) + line.lstrip() if line.strip() else "")
    kept = [line for i, line in enumerate(moved) if line or i in inside or (i and moved[i - 1])]
    while kept and not kept[0]:
        kept.pop(0)
    return "\n".join(kept).rstrip("\n") + "\n"


def _dashed(line: str) -> str:
    """A line with one space after its dash, if it is an item of a list."""
    words = line.lstrip(" ")
    if not words.startswith("- "):
        return line
    return line[: len(line) - len(words)] + "- " + words[2:].lstrip(" ")


def _depths(node: Node, depth: int, wanted: dict[int, int], inside: set[int], blocks: set[int]) -> None:
    source = node.span.source
    first = source.line_column(node.span.start)[0] - 1
    last = source.line_column(max(node.span.start, node.span.end - 1))[0] - 1
    if isinstance(node, Scalar) or node.flow:
        inside.update(range(first + 1, last + 1))
        if isinstance(node, Scalar) and node.style in ("|", ">"):
            blocks.update(range(first + 1, last + 1))
        return
    if isinstance(node, Sequence):
        for item in node.items:
            line, column = source.line_column(item.span.start)
            dash = source.line(line)[: column - 1]
            if dash.strip() == "-":
                wanted[line - 1] = 2 * depth
            _depths(item, depth + 1, wanted, inside, blocks)
        return
    for key, value in node.items:
        line, column = source.line_column(key.span.start)
        if not source.line(line)[: column - 1].strip():
            wanted[line - 1] = 2 * depth
        _depths(value, depth + 1, wanted, inside, blocks)


def _words(text: str) -> str:
    """The text of an expression without space and parentheses."""
    return "".join(c for c in text if not c.isspace() and c not in "()")


def _content(node: Node, path: Path) -> object:
    """The content of a node, for comparison: its keys, words and trees of expressions."""
    if isinstance(node, Scalar):
        expr = _read(node.text) if _is_expression(path) else None
        return node.text if expr is None else (_words(node.text), meaning(expr))
    if isinstance(node, Sequence):
        return [_content(item, (*path, "-")) for item in node.items]
    return [(key.text, _content(value, (*path, key.text))) for key, value in node.items]
