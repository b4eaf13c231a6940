"""The names in a file of what a spec reads, found while its rows pass: any row can have a new key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rewardspec.logs.columns import flat
from rewardspec.logs.parts import BATCH, RolloutFile
from rewardspec.logs.rows import BadLog, Unread

T = TypeVar("T")
Names = TypeVar("Names")


@dataclass
class Keys:
    """The keys of rows, in the order in which they appear. top: at the top. found: these, and those under `rewards`."""

    top: dict[str, None] = field(default_factory=dict)
    found: dict[str, None] = field(default_factory=dict)

    def add(self, rows: Iterable[Mapping[str, object] | Unread]) -> None:
        for row in rows:
            if not isinstance(row, Unread):
                self.top.update(dict.fromkeys(row))
                self.found.update(dict.fromkeys(flat(row)))

    def join(self, more: Keys) -> bool:
        """Add the keys of later rows; whether any is new."""
        before = len(self.top) + len(self.found)
        self.top.update(more.top)
        self.found.update(more.found)
        return len(self.top) + len(self.found) > before


def all_keys(file: RolloutFile) -> Keys:
    """The keys of all rows. Raises BadLog if no row is a rollout."""
    keys = Keys()
    for part in file.parts(BATCH):
        keys.add(part.rows())
    if not keys.top:
        raise file.without_rows()
    return keys


class _OtherNames(Exception):
    """The names that were chosen are not those of the whole file."""


def read_by_names(
    file: RolloutFile,
    choose: Callable[[Keys], Names],
    read: Callable[[Names, Callable[[Keys], None]], T],
    at_once: bool = True,
) -> T:
    """What `read` makes of a file, given the names that `choose` finds in its keys.

    choose: names from keys; raises BadLog where they are not there. read: called with names, and with a function that
    takes the keys of each part as it passes; it is called a second time if these change the names.
    at_once: choose by the first rows; else by all keys. Raises BadLog, as `choose` and `read` do.
    """
    keys = Keys()
    for part in file.parts(BATCH):
        keys.add(part.rows())
        break
    try:
        names = choose(keys if at_once else all_keys(file))
    except BadLog:
        keys = all_keys(file)
        names = choose(keys)

    def passing(more: Keys) -> None:
        if keys.join(more) and choose(keys) != names:
            raise _OtherNames

    try:
        return read(names, passing)
    except _OtherNames:
        return read(choose(all_keys(file)), lambda more: None)
