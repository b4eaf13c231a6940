"""Diagnostics as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rewardspec._version import __version__
from rewardspec.text.diagnostics import Diagnostic

_Json = dict[str, Any]
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(diagnostics: Sequence[Diagnostic], page: Callable[[str], str | None]) -> _Json:
    """A SARIF log with one run: the rules and the results. File names are relative to the working directory.

    page: the page of a code, None if it has none.
    """
    codes = sorted({d.code for d in diagnostics})
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "rewardspec",
                        "version": __version__,
                        "rules": [_rule(code, page(code)) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(d, codes.index(d.code)) for d in diagnostics],
            }
        ],
    }


def _rule(code: str, text: str | None) -> _Json:
    """The rule of a code: its page (Markdown, as `rewardspec explain` prints it), or the code in words."""
    if text is None:
        return {"id": code, "shortDescription": {"text": code.replace("-", " ")}}
    short, what, *_ = text.split("\n\n")
    return {
        "id": code,
        "shortDescription": {"text": short},
        "fullDescription": {"text": " ".join(what.split())},
        "help": {"text": text, "markdown": text},
    }


def _result(diagnostic: Diagnostic, rule: int) -> _Json:
    found: dict[str, Any] = diagnostic.to_json()
    text = diagnostic.message + (f"\n{diagnostic.help}" if diagnostic.help else "")
    result = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity,
        "message": {"text": text},
        "locations": [_location(found)],
    }
    if found["labels"]:
        result["relatedLocations"] = [
            {"id": i, "message": {"text": label["message"]}, **_location(label)}
            for i, label in enumerate(found["labels"])
        ]
    return result


def _location(place: _Json) -> _Json:
    region = {
        "startLine": place["line"],
        "startColumn": place["column"],
        "endLine": place["end_line"],
        "endColumn": place["end_column"],
    }
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(place["file"])}, "region": region}}


def _uri(file: str) -> str:
    """A file as a URI, relative to the working directory if it is inside."""
    path = Path(file)
    if not path.is_absolute() and ".." not in path.parts:
        return quote(path.as_posix())
    path, here = path.resolve(), Path.cwd().resolve()
    return quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()
