"""Texts kept on disk by key: one SQLite file, which several processes can use at once.

A process that is killed loses what it was writing, and a file that cannot be used costs a warning, never a run.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_LOG = logging.getLogger(__name__)


def recall(path: Path, what: str, keys: Iterable[str]) -> dict[str, str] | None:
    """The kept texts, by key; None, with a warning, if the file cannot be used.

    what: the texts, for the warning: "a judge's answers".
    """
    found = {}
    try:
        with _opened(path) as file:
            for key in keys:
                row = file.execute("SELECT answer FROM answers WHERE request = ?", (key,)).fetchone()
                if row and isinstance(row[0], str):
                    found[key] = row[0]
    except (sqlite3.Error, OSError) as error:
        _LOG.warning("the cache of %s cannot be used: %s: %s", what, path, error)
        return None
    return found


def keep(path: Path, what: str, texts: Mapping[str, str]) -> bool:
    """Save texts for `recall`. Whether they were; a warning if not."""
    if not texts:
        return True
    try:
        with _opened(path) as file, file:
            file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", texts.items())
    except (sqlite3.Error, OSError) as error:
        _LOG.warning("%s could not be saved: %s: %s", what, path, error)
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for this call only: one that is shared across a fork would corrupt the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=30)) as file:
        with suppress(sqlite3.OperationalError):  # it does not wait: another who has just made the file is at it too
            file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(
            "CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"
        )
        yield file
