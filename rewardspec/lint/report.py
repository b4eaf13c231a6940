"""Diagnostics for other programs: SARIF 2.1.0, and the annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from rewardspec._version import __version__
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.shown import inert, shown

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(diagnostics: Sequence[Diagnostic], page: Callable[[str], str | None]) -> dict:
    """One run of results, each with its rule and places. Files are relative to the working directory.

    page: the text that explains a code, if there is one.
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


def _rule(code: str, text: str | None) -> dict:
    """What a code means: the page that `rewardspec explain` shows, which is Markdown, or the words of the code."""
    if text is None:
        return {"id": code, "shortDescription": {"text": code.replace("-", " ")}}
    short, what, *_ = text.split("\n\n")
    return {
        "id": code,
        "shortDescription": {"text": short},
        "fullDescription": {"text": " ".join(what.split())},
        "help": {"text": text, "markdown": text},
    }


def _result(diagnostic: Diagnostic, rule: int) -> dict:
    found = diagnostic.to_json()
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


def _location(place: dict) -> dict:
    region = {
        "startLine": place["line"],
        "startColumn": place["column"],
        "endLine": place["end_line"],
        "endColumn": place["end_column"],
    }
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(place["file"])}, "region": region}}


def _uri(file: str) -> str:
    """A file as a URI, relative to the working directory where it lies under it."""
    path = Path(file)
    if not path.is_absolute() and ".." not in path.parts:
        return quote(path.as_posix())
    path, here = path.resolve(), Path.cwd().resolve()
    return quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()


def github(diagnostic: Diagnostic) -> str:
    """A workflow command that annotates the line."""
    found = diagnostic.to_json()
    place = f"file={_property(found['file'])},line={found['line']},col={found['column']}"
    text = diagnostic.message + (f" ({diagnostic.help})" if diagnostic.help else "")
    text += "".join(f"\n{label.span.place()}: {label.message}" for label in diagnostic.labels)
    kind = "notice" if diagnostic.severity == "note" else diagnostic.severity
    return f"::{kind} {place},title={_property(diagnostic.code)}::{_message(text)}"


def _message(text: str) -> str:
    return "%0A".join(inert(shown(line)) for line in text.replace("%", "%25").split("\n"))


def _property(text: str) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return inert(shown(text)).replace(":", "%3A").replace(",", "%2C")
