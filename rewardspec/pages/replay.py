"""The page of a run that was replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rewardspec._version import __version__
from rewardspec.pages.page import page
from rewardspec.pages.texts import MOST_OF_A_SPEC, bounded, texts_of
from rewardspec.prove.changes import changes
from rewardspec.runs.health import parts_of, together
from rewardspec.runs.replay import RunReplay
from rewardspec.runs.suggest import Suggestion
from rewardspec.spec import Spec

MOST_STEPS = 1000  # that are drawn one by one; of more, neighbours are put together


def replay_page(found: RunReplay, specs: Sequence[Spec], suggestions: Sequence[Suggestion] | None = None) -> str:
    """A run under specs as one HTML file: health, audit, components, and two specs beside each other.

    specs: those that `found` is of, in its order. suggestions: as `suggest` gives them; None if nobody asked. Of more
    than `MOST_STEPS` steps the page has parts of equally many neighbours, with the least and greatest numbers of each.
    The log is read once more, for the texts of the rollouts that are shown. Raises NoLibrary, BadLog, OSError.
    """
    shown = [row for spec in found.specs for remark in spec.audit for row in remark.rollouts]
    shown += found.difference.rollouts if found.difference is not None else ()
    texts = texts_of(found.run, shown)
    names = [path.name or str(path) for path in found.run.paths]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    notes = []
    data, every = found.to_json(), len(found.specs[0].steps)
    if every > MOST_STEPS:
        data["steps"] = [
            {"spec": spec.name, **together(part)} for spec in found.specs for part in parts_of(spec.steps, MOST_STEPS)
        ]
    if shown and not any("completion" in own for own in texts.of.values()):
        notes.append("The log has no text of completions, so rollouts unfold without it.")
    return page(
        f"{title}: rewardspec replay",
        {
            "kind": "replay",
            "version": __version__,
            "heading": "A run, replayed under " + ("its reward spec" if len(specs) == 1 else "two reward specs"),
            "title": title or "A run",
            "found": data,
            "together": {"steps": every, "each": -(-every // MOST_STEPS)} if every > MOST_STEPS else None,
            "texts": texts.to_json(),
            "changes": [asdict(change) for change in changes(*specs)] if len(specs) > 1 else [],
            "sources": [
                {"name": told.name, "text": bounded(spec.source.text, MOST_OF_A_SPEC)}
                for told, spec in zip(found.specs, specs, strict=True)
            ],
            "suggestions": None if suggestions is None else [asdict(one) for one in suggestions],
            "notes": notes,
        },
    )
