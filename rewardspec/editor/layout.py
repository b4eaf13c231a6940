"""Formatting, as `rewardspec fmt` does it."""

from __future__ import annotations

from rewardspec.editor.document import Document
from rewardspec.syntax.formatter import formatted
from rewardspec.text.diagnostics import Report

Edit = tuple[int, int, str]  # the characters from start to end become the text


def format_edits(document: Document) -> list[Edit]:
    """The edit that formats a file, around the lines that change; empty for no change, and if it does not parse."""
    new = formatted(document.source, Report())
    if new is None or new == document.text:
        return []
    old_lines, new_lines = document.text.splitlines(keepends=True), new.splitlines(keepends=True)
    first = 0
    while first < min(len(old_lines), len(new_lines)) and old_lines[first] == new_lines[first]:
        first += 1
    last = 0
    while last < min(len(old_lines), len(new_lines)) - first and old_lines[-1 - last] == new_lines[-1 - last]:
        last += 1
    start = sum(map(len, old_lines[:first]))
    end = sum(map(len, old_lines[: len(old_lines) - last]))
    return [(start, end, "".join(new_lines[first : len(new_lines) - last]))]
