"""Diagnostics for other programs: SARIF 2.1.0, and the annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence

from rewardspec._version import __version__
from rewardspec.diagnostics import Diagnostic

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(diagnostics: Sequence[Diagnostic]) -> dict:
    """One run of results, each with its rule and place."""
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "rewardspec",
                        "version": __version__,
                        "rules": [{"id": code} for code in sorted({d.code for d in diagnostics})],
                    }
                },
                "results": [_result(d) for d in diagnostics],
            }
        ],
    }


def _result(diagnostic: Diagnostic) -> dict:
    found = diagnostic.to_json()
    region = {
        "startLine": found["line"],
        "startColumn": found["column"],
        "endLine": found["end_line"],
        "endColumn": found["end_column"],
    }
    text = diagnostic.message + (f"\n{diagnostic.help}" if diagnostic.help else "")
    return {
        "ruleId": diagnostic.code,
        "level": diagnostic.severity,
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": found["file"]}, "region": region}}],
    }


def github(diagnostic: Diagnostic) -> str:
    """A workflow command that annotates the line."""
    found = diagnostic.to_json()
    place = f"file={_escaped(found['file'])},line={found['line']},col={found['column']}"
    text = diagnostic.message + (f" ({diagnostic.help})" if diagnostic.help else "")
    return f"::{diagnostic.severity} {place},title={diagnostic.code}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
