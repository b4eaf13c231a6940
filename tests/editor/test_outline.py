"""The outline of files that are typed: it agrees with the YAML reader where that reads, and never fails."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import CASES, SPECS
from test_cases import CASE

from rewardspec.language.outline import Cursor, cursor, outline
from rewardspec.syntax.yaml import Mapping, Sequence, read_yaml
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source

TEXTS = [path.read_text() for path in sorted(SPECS.rglob("*.yaml"))]
TEXTS += [match["spec"] for path in sorted(CASES.rglob("*.md")) for match in CASE.finditer(path.read_text())]


def read(text):
    report = Report()
    root = read_yaml(Source("", text), report)
    return None if report.diagnostics else root


def by_reader(node, path=()):
    """(path, offset, text) of every key and single value, as the YAML reader has them."""
    if isinstance(node, Mapping):
        for key, value in node.items:
            here = (*path, key.text)
            yield here, key.span.start + (key.span.text[0] in "\"'"), "key"
            yield from by_reader(value, here)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from by_reader(item, (*path, "-"))
    elif node.text or node.style:
        yield path, node.span.start, node.span.text.rstrip()


def by_outline(text):
    for entry in outline(text).walk():
        if entry.key is not None:
            yield entry.path, entry.key[0], "key"
        if entry.value is not None:
            yield entry.path, entry.value[0], text[slice(*entry.value)].rstrip()


@pytest.mark.slow
def test_outline_agrees_with_the_reader():
    """On every second published spec and case that is YAML: every key and value, its path and place."""
    read_ones = [(text, root) for text in TEXTS[::2] if (root := read(text)) is not None]
    assert len(read_ones) > 250
    for text, root in read_ones:
        assert sorted(by_outline(text)) == sorted(by_reader(root)), text


@pytest.mark.slow
def test_cursor_is_where_the_reader_has_the_key_or_value():
    draw = random.Random(0)
    for text in draw.sample(TEXTS, 100):
        root = read(text)
        for path, start, what in by_reader(root) if root is not None else ():
            place = cursor(text[: start + 1])
            first = text[start - 1 : start] in ('"', "'") or what[:1] in ("|", ">", "{", "[", '"', "'")
            if what == "key" and not first:
                # the first word below a key could still be its value
                assert place is not None and (place.path, place.is_key) in (
                    (path[:-1], True),
                    (path[:-1], False),
                ), text[: start + 1]
            elif what != "key" and path[-1] != "-":
                assert place is not None and (place.path, place.is_key) == (path, False), text[: start + 1]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", Cursor((), True, 0)),
        ("na", Cursor((), True, 0)),
        ("name: a", Cursor(("name",), False, 6)),
        ("name: a\n", Cursor((), True, 8)),
        ("a:\n  b: 1\n  ", Cursor(("a",), True, 12)),
        ("a:\n  b:\n    ", Cursor(("a", "b"), True, 12)),
        ("a:\n  b: {c: 1, ", Cursor(("a", "b"), True, 15, "{")),
        ("a:\n  b: {c: [0, ", Cursor(("a", "b", "c", "-"), False, 16, "[")),
        ("a: x +\n  ", Cursor(("a",), False, 3)),
        ("a: f(x, ", Cursor(("a",), False, 3)),
        ("a: {b: f(x, ", Cursor(("a", "b"), False, 7, "{")),
        ("a: {b: 1\nc: ", Cursor(("c",), False, 12)),  # the bracket was forgotten
        ("a: 'x\nc: ", Cursor(("c",), False, 9)),  # and the quote
        ("a: # com", None),
        ("a: 1 # com", None),
        ("a:\n  - b: 1\n    ", Cursor(("a", "-"), True, 16)),
    ],
)
def test_cursor_by_hand(text, place):
    assert cursor(text) == place


@pytest.mark.slow
@given(st.text(st.sampled_from("ab:-#{}[](),\"'|> \n\t\\"), max_size=60))
def test_outline_of_any_text_is_within_it(text):
    for entry in outline(text).walk():
        assert 0 <= entry.start <= entry.end <= len(text)
        for place in (entry.key, entry.value):
            assert place is None or 0 <= place[0] <= place[1] <= len(text)
    place = cursor(text)
    assert place is None or 0 <= place.start <= len(text)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{" * 60_000, "- " * 30_000, "a: [" * 16_000, "a:\n " * 15_000, "'\n" * 30_000])
def test_outline_of_deep_texts_is_flat_below_a_depth(text):
    assert max(len(entry.path) for entry in outline(text).walk()) < 60
