"""Diagnostics as annotations of GitHub Actions."""

from __future__ import annotations

from typing import Any

from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.shown import inert, shown


def github(diagnostic: Diagnostic) -> str:
    """The workflow command that annotates the line of a diagnostic."""
    found: dict[str, Any] = diagnostic.to_json()
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
