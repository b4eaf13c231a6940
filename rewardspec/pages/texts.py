"""The texts of rollouts that a page shows: looked up in the log once more, each of bounded length."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rewardspec.logs.run import Run, Step
from rewardspec.runs.audit import Row

MOST_CHARACTERS = 8_000  # of a text; of a longer one its beginning and its end are shown
FEWEST_CHARACTERS = 400
MOST_IN_ALL = 1_000_000  # characters of all texts of a page, as long as each has the fewest
MOST_OF_A_SPEC = 100_000  # characters
AT_THE_END = 4  # the end of a text is one part of so many

NAMES = ("prompt", "completion")


@dataclass
class Texts:
    """Texts, and which rollout has which.

    texts: each with `text`, `end`, `cut` and `length`: all of it and no end, or its beginning, its end, and how many
    characters between them are left out. of: `key` of a rollout to the places in `texts` of its prompt and completion.
    """

    texts: list[dict[str, Any]] = field(default_factory=list)
    of: dict[str, dict[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"texts": self.texts, "of": self.of}


def texts_of(run: Run, rows: Iterable[Row]) -> Texts:
    """The prompts and completions of rollouts, as far as the log has them. Raises BadLog, OSError.

    One pass over the log, up to the last step that has one of them.
    """
    wanted = {key(row): row for row in rows}
    steps = {row["step"] for row in wanted.values()}
    most = min(MOST_CHARACTERS, max(FEWEST_CHARACTERS, MOST_IN_ALL // max(1, len(wanted))))
    found, known = Texts(), dict[str, int]()
    for place, step in enumerate(run.steps() if wanted else ()):
        number = place if step.number is None else step.number
        if number not in steps:
            continue
        there = [name for name in NAMES if name in step.columns]
        for name, row in [*wanted.items()]:
            if row["step"] != number or not _is_of(row, step):
                continue
            del wanted[name]
            for what in there:
                value = step.columns[what][row["rollout"]]
                if value is None:
                    continue
                text = value if isinstance(value, str) else json.dumps(value, default=str, indent=2)
                if text not in known:
                    known[text] = len(found.texts)
                    found.texts.append(bounded(text, most))
                found.of.setdefault(name, {})[what] = known[text]
        if not wanted:
            break
    return found


def key(row: Row) -> str:
    """The name of a rollout: its file and row, where it is known, else its step and its place there."""
    return f"{row['file']}:{row['row']}" if "file" in row else f"{row['step']} {row['rollout']}"


def _is_of(row: Row, step: Step) -> bool:
    """Whether a rollout is of this step: in several logs, several steps have one number."""
    if row["rollout"] >= len(step):
        return False
    if "file" not in row or not step.places:
        return True
    path, line = step.places[row["rollout"]]
    return (str(path), line) == (row["file"], row["row"])


def bounded(text: str, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """A text, or the beginning and the end of a long one.

    bounded("abcdefgh", 4) = {"text": "abc", "end": "h", "cut": 4, "length": 8}
    """
    if len(text) <= most:
        return {"text": text, "end": "", "cut": 0, "length": len(text)}
    tail = most // AT_THE_END
    return {"text": text[: most - tail], "end": text[-tail:], "cut": len(text) - most, "length": len(text)}
