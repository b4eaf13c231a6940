"""The rewards that a run has measured so far, in a file next to its output, from which an interrupted run resumes.

The first line is a heading: the spec and the versions of its reward functions. Every other line has the number of a
row, a hash of it, and its outcome. The last line of a row counts. The lines stay on disk: in memory is where they are.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardspec.logs.outputs import beside, replace
from rewardspec.logs.parts import Part
from rewardspec.logs.rows import BadLog
from rewardspec.scoring.measure import Outcome
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

SUFFIX = ".partial"
FORMAT = 2
LARGEST = sys.float_info.max


class Partial:
    """The outcomes of an earlier run, and a file to which those of this run are added.

    heading: texts that identify the run. An outcome of an earlier run is used if the heading is equal and the row has
    not changed. count: the rows of the file. names: the measured columns, and whether each holds lists. restart:
    ignore an earlier run. Raises BadLog for an earlier run with another heading.
    """

    def __init__(
        self, output: Path, heading: Mapping[str, Any], count: int, names: Mapping[str, bool], restart: bool = False
    ):
        self.path = beside(output, SUFFIX)
        self.places = array("q", bytes(8 * count))  # where the line of each row begins; 0 if there is none
        self.beyond = 0  # lines of rows that are no longer in the file
        head = {"rewardspec": FORMAT, **heading}
        if restart or not self._resume(head, names):
            replace(self.path, lambda path: _write(path, json.dumps(head) + "\n"))
        self._file = open(self.path, "ab")  # noqa: SIM115
        self._earlier = open(self.path, "rb")  # noqa: SIM115

    def of(self, part: Part) -> dict[int, tuple[str, Outcome]]:
        """The digests and outcomes that an earlier run had for rows of a part, by their places in it."""
        found = {}
        for i, place in enumerate(self.places[part.first : part.first + len(part)]):
            if place:
                self._earlier.seek(place)
                _, digest, outcome = json.loads(self._earlier.readline())
                found[i] = (digest, outcome)
        return found

    def add(self, lines: Sequence[str]) -> None:
        """Add the lines of rows that were measured."""
        self._file.write("".join(lines).encode())
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        self._earlier.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _resume(self, head: dict[str, Any], names: Mapping[str, bool]) -> bool:
        """Whether an earlier run's file is continued; then `places` are filled."""
        if not self.path.exists():
            return False
        with open(self.path, "rb") as file:
            first = file.readline()
            if not first.endswith(b"\n"):  # the run ended before its heading was written
                return False
            before = _read(first)
            if not isinstance(before, dict) or before.get("rewardspec") != FORMAT:
                raise BadLog(
                    f"{shown(self.path)} is not the file of an interrupted run of this version: move it away, or "
                    "overwrite it with --restart"
                )
            at = whole = file.tell()
            rows = 0
            for line in file:
                if line.endswith(b"\n"):  # else it was being written
                    match _read(line):
                        case [int(number), str(_), dict() | str() as outcome] if _is_outcome(outcome, names):
                            if 0 < number <= len(self.places):
                                rows += not self.places[number - 1]
                                self.places[number - 1] = at
                            else:
                                self.beyond += 1
                    whole = at + len(line)
                at += len(line)
        differing = _differences(before, head)
        if differing and rows + self.beyond:
            raise BadLog(
                f"{shown(self.path)} has {rows + self.beyond:,} rows of an interrupted run with "
                f"another {'; another '.join(differing)}. Resume with the same inputs, name another output, or measure "
                "all rows again with --restart"
            )
        if differing:
            return False
        os.truncate(self.path, whole)  # the last line was being written
        return True


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


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
