"""Answers of judges, cached on disk by request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from rewardspec.rewards import kept

_FILE = "judge.sqlite"
_WHAT = "a judge's answers"


def cache_folder(cache: str) -> Path | None:
    """The folder that `cache` names: for `user` the user's cache folder, for `none` None."""
    if cache == "none":
        return None
    if cache == "user":
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rewardspec"
    return Path(cache).expanduser()


def there(folder: Path) -> bool:
    """Whether answers were ever kept in a folder."""
    return (folder / _FILE).exists()


def recall(folder: Path, requests: Iterable[str]) -> dict[str, str] | None:
    """The cached answers, by request; None, with a warning, if the file cannot be used."""
    return kept.recall(folder / _FILE, _WHAT, requests)


def keep(folder: Path, answers: Mapping[str, str]) -> None:
    """Save answers for `recall`; a warning if that fails."""
    kept.keep(folder / _FILE, _WHAT, answers)
