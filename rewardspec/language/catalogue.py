"""What ships with rewardspec: definitions, functions, dialects and specs, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewardspec.language.declarations import Definition
from rewardspec.language.prelude import dialects, prelude
from rewardspec.language.published import name_of_published, published_files
from rewardspec.language.shape import read_shape
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.resources import resource
from rewardspec.rewards.catalogue import all_rewards
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source


@dataclass(frozen=True)
class Entry:
    """One line of `rewardspec list`. `kind`: scheme, definition, function, reward, dialect or spec.

    name: as a spec or a command writes it. about: a description with its source.
    """

    kind: str
    name: str
    about: str


def catalogue() -> list[Entry]:
    """All entries, by kind, in the order of the files."""
    shipped = prelude()
    parts = [shipped.values["measured"], *shipped.functions.values()]
    return [
        *(Entry("scheme", d.name, comment_of(d)) for d in schemes()),
        *(Entry("definition", d.signature.span.text, comment_of(d)) for d in parts),
        *(Entry("function", f.signature(name), f"{f.about}: {f.example}") for name, f in FUNCTIONS.items()),
        *(Entry("reward", found.signature, found.about) for found in all_rewards()),
        *(Entry("dialect", name, _about(resource(f"specs/dialects/{name}.yaml"))) for name in dialects()),
        *(Entry("spec", name_of_published(path), _about(path)) for path in published_files()),
    ]


def schemes() -> list[Definition]:
    """The definitions of the prelude that `advantage:` can name, and the `total` that they normalise."""
    return [found for found in prelude().values.values() if found.name != "measured"]


def comment_of(definition: Definition) -> str:
    """The comment directly above a definition, as one line."""
    span = definition.signature.span
    number, _ = span.source.line_column(span.start)
    lines: list[str] = []
    while number > 1 and span.source.line(number - 1).strip().startswith("#"):
        number -= 1
        lines.insert(0, span.source.line(number).strip().lstrip("# "))
    return " ".join(lines)


def _about(path: Path) -> str:
    """The `source` of a spec file, or its `about` if it names no source."""
    report = Report()
    whole = read_shape(Source(path.name, path.read_text(encoding="utf-8")), report)
    assert whole is not None and not report.failed, f"{path} does not read"
    text = whole.one("source") or whole.one("about")
    return " ".join(text.text.split()) if text is not None else ""
