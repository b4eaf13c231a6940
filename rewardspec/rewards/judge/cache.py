"""Answers of judges, cached on disk by request: one SQLite file, which several processes can use at once."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_LOG = logging.getLogger(__name__)
_FILE = "judge.sqlite"


def cache_folder(cache: str) -> Path | None:
    """The folder that `cache` names: for `user` the user's cache folder, for `none` None."""
    if cache == "none":
        return None
    if cache == "user":
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rewardspec"
    return Path(cache).expanduser()


def recall(folder: Path, requests: Iterable[str]) -> dict[str, str] | None:
    """The cached answers, by request; None, with a warning, if the file cannot be used."""
    found = {}
    try:
        with _opened(folder) as file:
            for request in requests:
                row = file.execute("SELECT answer FROM answers WHERE request = ?", (request,)).fetchone()
                if row and isinstance(row[0], str):
                    found[request] = row[0]
    except (sqlite3.Error, OSError) as error:
        _LOG.warning("the cache of a judge's answers cannot be used: %s: %s", folder / _FILE, error)
        return None
    return found


def keep(folder: Path, answers: Mapping[str, str]) -> None:
    """Save answers for `recall`; a warning if that fails."""
    if not answers:
        return
    try:
        with _opened(folder) as file, file:
            file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", answers.items())
    except (sqlite3.Error, OSError) as error:
        _LOG.warning("a judge's answers could not be saved: %s: %s", folder / _FILE, error)


@contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection for this call only: one that is shared across a fork would corrupt the file."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / _FILE, timeout=30)) as file:
        with suppress(sqlite3.OperationalError):  # it does not wait: another who has just made the file is at it too
            file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(
            "CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"
        )
        yield file
