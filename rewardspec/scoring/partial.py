"""The rewards that a run has measured so far, in a file next to its output, from which an interrupted run resumes.

The first line is a heading: the spec and the versions of its reward functions. Every other line has the number of a
row, a hash of it, and its outcome.
"""

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

Outcome = dict[str, Any] | str  # values by column, or the reason for none


class Partial:
    """The outcomes of rows, by index: those of an earlier run first, then those that are added.

    heading: texts that identify the run. An outcome of an earlier run is used if the heading is equal and the row has
    not changed. digests: hashes of the rows. names: the measured columns, and whether each holds lists. restart:
    ignore an earlier run. Raises BadLog for an earlier run with another heading.
    """

    def __init__(
        self,
        output: Path,
        heading: Mapping[str, Any],
        digests: Sequence[str],
        names: Mapping[str, bool],
        restart: bool = False,
    ):
        self.path, self.digests = beside(output, SUFFIX), digests
        self.outcomes: dict[int, Outcome] = {}
        self.stale = 0  # lines of rows that have changed
        if not restart:
            self._resume(dict(heading), names)
        self.resumed = len(self.outcomes)
        lines = [json.dumps({"rewardspec": FORMAT, **heading}), *map(self._line, self.outcomes)]

        def write(path: Path) -> None:
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

        replace(self.path, write)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115

    def add(self, found: Mapping[int, Outcome]) -> None:
        """Add outcomes and write them to the file."""
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

    def _resume(self, heading: dict[str, Any], names: Mapping[str, bool]) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        first, *lines = data.split(b"\n")
        if not lines:  # the run ended before its heading was written
            return
        before = _read(first)
        if not isinstance(before, dict) or before.get("rewardspec") != FORMAT:
            raise BadLog(
                f"{shown(self.path)} is not the file of an interrupted run of this version: move it away, or overwrite "
                "it with --restart"
            )
        found = {}
        for line in lines[:-1]:  # the last line is incomplete or empty
            match _read(line):
                case [int(number), str(digest), dict() | str() as outcome] if _is_outcome(outcome, names):
                    if 0 < number <= len(self.digests) and self.digests[number - 1] == digest:
                        found[number - 1] = outcome
                    else:
                        self.stale += 1
        differing = _differences(before, {"rewardspec": FORMAT, **heading})
        if differing and (found or self.stale):
            raise BadLog(
                f"{shown(self.path)} has {len(found) + self.stale:,} rows of an interrupted run with "
                f"another {'; another '.join(differing)}. Resume with the same inputs, name another output, or measure "
                "all rows again with --restart"
            )
        self.outcomes = {} if differing else dict(sorted(found.items()))


def _read(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_outcome(outcome: Outcome, names: Mapping[str, bool]) -> bool:
    if isinstance(outcome, str):
        return bool(outcome)
    return outcome.keys() == names.keys() and all(_is_value(outcome[name], lists) for name, lists in names.items())


def _is_value(value: object, lists: bool) -> bool:
    return isinstance(value, list) and all(map(_is_number, value)) if lists else _is_number(value)


def _is_number(value: object) -> bool:
    """Whether it is a measured value, or None for a missing one."""
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The entries of a heading that differ, as texts: `spec: 12ab, now 34cd`."""
    found = []
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            was, new = (shorten(str(held.get(name, "none")), 120) for held in (before, now))
            found.append(f"{shorten(name)}: {was}, now {new}")
    return found
