"""The page of a run that was replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rewardspec._version import __version__
from rewardspec.pages.page import page
from rewardspec.pages.texts import MOST_OF_A_SPEC, bounded, texts_of
from rewardspec.prove.changes import changes
from rewardspec.runs.replay import RunReplay
from rewardspec.runs.suggest import Suggestion
from rewardspec.spec import Spec


def replay_page(found: RunReplay, specs: Sequence[Spec], suggestions: Sequence[Suggestion] | None = None) -> str:
    """A run under specs as one HTML file: health, audit, components, and two specs beside each other.

    specs: those that `found` is of, in its order. suggestions: as `suggest` gives them; None if nobody asked. The log
    is read once more, for the texts of the rollouts that are shown. Raises NoLibrary, BadLog, OSError.
    """
    shown = [row for spec in found.specs for remark in spec.audit for row in remark.rollouts]
    shown += found.difference.rollouts if found.difference is not None else ()
    texts = texts_of(found.run, shown)
    names = [path.name or str(path) for path in found.run.paths]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    notes = []
    if shown and not any("completion" in own for own in texts.of.values()):
        notes.append("The log has no text of completions, so rollouts unfold without it.")
    data = {
        "kind": "replay",
        "version": __version__,
        "heading": "A run, replayed under " + ("its reward spec" if len(specs) == 1 else "two reward specs"),
        "title": title or "A run",
        "found": found.to_json(),
        "texts": texts.to_json(),
        "changes": [asdict(change) for change in changes(*specs)] if len(specs) > 1 else [],
        "sources": [
            {"name": told.name, "text": bounded(spec.source.text, MOST_OF_A_SPEC)}
            for told, spec in zip(found.specs, specs, strict=True)
        ],
        "suggestions": None if suggestions is None else [asdict(one) for one in suggestions],
        "notes": notes,
    }
    return page(f"{title}: rewardspec replay", data)
