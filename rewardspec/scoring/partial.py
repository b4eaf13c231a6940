"""What a run has measured so far, kept beside its output: which row each line is of, and by what it was measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardspec.logs.outputs import beside, replace
from rewardspec.logs.rows import BadLog
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

SUFFIX = ".partial"
FORMAT = 2
LARGEST = sys.float_info.max

Outcome = dict[str, Any] | str  # a value by column, or why there is none


class Partial:
    """The outcomes of rows, by their place, as they are found. Those of an earlier run are there from the start.

    heading: what a run is of, a text by name. Lines of an earlier run count where it had the same heading, and
    where the row at their place is still the same. digests: of the rows. names: the columns that are measured.
    restart: leave what an earlier run has measured. Raises BadLog for an earlier run of another heading.
    """

    def __init__(
        self,
        output: Path,
        heading: Mapping[str, Any],
        digests: Sequence[str],
        names: Sequence[str],
        restart: bool = False,
    ):
        self.path, self.digests = beside(output, SUFFIX), digests
        self.outcomes: dict[int, Outcome] = {}
        self.stale = 0  # lines of rows that are others now
        if not restart:
            self._take_up(dict(heading), set(names))
        self.resumed = len(self.outcomes)
        lines = [json.dumps({"rewardspec": FORMAT, **heading}), *map(self._line, self.outcomes)]

        def write(path: Path) -> None:
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

        replace(self.path, write)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115

    def add(self, found: Mapping[int, Outcome]) -> None:
        """Outcomes that are not lost from now on."""
        self.outcomes |= found
        self._file.writelines(self._line(place) + "\n" for place in found)
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _line(self, place: int) -> str:
        return json.dumps([place + 1, self.digests[place], self.outcomes[place]])

    def _take_up(self, heading: dict[str, Any], names: set[str]) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        first, *lines = data.split(b"\n")
        if not lines:  # it ended before it had begun
            return
        before = _read(first)
        if not isinstance(before, dict) or before.get("rewardspec") != FORMAT:
            raise BadLog(
                f"{shown(self.path)} is not what this version keeps of a run that was interrupted: move it away, or "
                "begin anew over it (--restart)"
            )
        found = {}
        for line in lines[:-1]:  # the last one has no end
            match _read(line):
                case [int(number), str(digest), dict() | str() as outcome] if _is_outcome(outcome, names):
                    if 0 < number <= len(self.digests) and self.digests[number - 1] == digest:
                        found[number - 1] = outcome
                    else:
                        self.stale += 1
        differing = _differences(before, {"rewardspec": FORMAT, **heading})
        if differing and (found or self.stale):
            raise BadLog(
                f"{shown(self.path)} has {len(found) + self.stale:,} rows of a run that was interrupted, which had "
                f"another {'; another '.join(differing)}. Go on with what it had, name another output, or begin anew "
                "(--restart)"
            )
        self.outcomes = {} if differing else dict(sorted(found.items()))


def _read(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_outcome(outcome: Outcome, names: set[str]) -> bool:
    if isinstance(outcome, str):
        return bool(outcome)
    return outcome.keys() == names and all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST)
        for value in outcome.values()
    )


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is not as it was, in words: `spec: 12ab, now 34cd`."""
    found = []
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            was, new = (shorten(str(held.get(name, "none")), 120) for held in (before, now))
            found.append(f"{shorten(name)}: {was}, now {new}")
    return found
