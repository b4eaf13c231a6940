"""Pages of the published specs, from their files in `specs/`."""

from __future__ import annotations

import re

from rewardspec.language.catalogue import schemes
from rewardspec.language.published import published_names
from rewardspec.manual.page import Kind, Page, fenced, paragraphs, sentence, table
from rewardspec.prove.explain import explain
from rewardspec.resources import resource
from rewardspec.spec import load
from rewardspec.syntax.tree import Name


def _spec(name: str) -> Page:
    spec = load(resource(f"specs/{name}.yaml"))
    found = explain(spec)
    read = [row for row in found.columns if row[0] in spec.columns]
    body = paragraphs(
        sentence(" ".join((spec.declarations.about or spec.name).split())),
        spec.declarations.origin and f"Source: {' '.join(spec.declarations.origin.split())}",
        fenced(spec.source.text),
        f"It needs of a trainer: {', '.join(found.needs) or 'nothing but its columns'}. It reads:",
        table(("column", "level", "domain", "missing", "measured by"), [tuple(map(_code, row)) for row in read]),
        fenced(
            f"$ rewardspec check {name}\n$ rewardspec verify {name}\n$ rewardspec new mine --like {name}", "console"
        ),
    )
    advantage = spec.declarations.advantage
    used = [("scheme", one.name) for one in schemes() if isinstance(advantage, Name) and advantage.text == one.name]
    used += [("reward", one) for one in dict.fromkeys(re.findall(r"\buse: ([\w.]+)", spec.source.text))]
    return Page("spec", name, body, tuple(used))


def _code(cell: str) -> str:
    return f"`{cell}`" if cell else ""


SPECS = Kind("spec", "set-ups of papers and of projects, each with its source", published_names, _spec)
