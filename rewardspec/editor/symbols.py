"""The sections and names of a spec, for the outline of an editor."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.editor.document import Document
from rewardspec.language.outline import Entry
from rewardspec.text.shown import shown

LONGEST = 60


@dataclass(frozen=True)
class Item:
    """A key of a spec with those inside it. kind: section, value, or the kind of the names of its section.

    start, end: all of it. key: the characters of its name. detail: its value, on one line.
    """

    name: str
    kind: str
    detail: str
    start: int
    end: int
    key: tuple[int, int]
    items: tuple[Item, ...] = ()


_KINDS = {
    "signals": "signal",
    "components": "component",
    "state": "state",
    "lists": "list",
    "define": "definition",
    "guarantees": "guarantee",
    "allow": "finding",
}


def symbols(document: Document) -> list[Item]:
    """The sections of a file in the order of the text, each with its names."""
    found = []
    for section in document.outline.entries:
        kind = _KINDS.get(section.name, "")
        inside = [_item(document, one, _kind(kind, one), ()) for one in section.entries if kind and one.key is not None]
        if section.key is not None and not section.partial:
            found.append(_item(document, section, "section" if section.entries else "value", tuple(inside)))
    return found


def _kind(kind: str, entry: Entry) -> str:
    return "function" if kind == "definition" and "(" in entry.name else kind


def _item(document: Document, entry: Entry, kind: str, items: tuple[Item, ...]) -> Item:
    assert entry.key is not None, "an item has a key"
    inside = document.text[entry.key[1] : entry.end].lstrip("\"': \t\n") if not items else ""
    detail = shown(" ".join(inside.split()))
    detail = detail if len(detail) <= LONGEST else detail[: LONGEST - 3] + "..."
    return Item(shown(entry.name) or " ", kind, detail, entry.start, entry.end, entry.key, items)
