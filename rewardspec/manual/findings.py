"""Pages of findings and of errors: the docstrings of `lint/rules/`, and the texts of `lint/pages.py`."""

from __future__ import annotations

from rewardspec.lint import codes, page, registered
from rewardspec.manual.page import Kind, Page


def _finding(code: str) -> Page:
    return Page("finding", code, page(code) or "")


def _error(code: str) -> Page:
    return Page("error", code, page(code) or "")


def _errors() -> list[str]:
    found = registered()
    return [code for code in codes() if code not in found]


FINDINGS = Kind("finding", "what `check` warns about in a well-formed spec", lambda: [*registered()], _finding)
ERRORS = Kind("error", "messages about a spec that need more than a line", _errors, _error)
