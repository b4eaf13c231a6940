"""What a shell completes: names of published specs beside files, and the words that options take.

Each function takes the unfinished word. Where it returns nothing, the shell completes files by itself, which it does
better: it adds no space after a folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

_SAFE = re.compile(r"[\w./-]+")  # in every shell, unquoted


def specs(incomplete: str) -> list[str]:
    """Published specs, and beside them the spec files and folders here; nothing if no published spec begins so."""
    names = published(incomplete)
    return [*names, *_files(incomplete)] if names else []


def published(incomplete: str) -> list[str]:
    """Published specs by name."""
    from rewardspec.language.published import published_names

    return _beginning(incomplete, published_names())


def words_of_explain(incomplete: str) -> list[str]:
    """Everything that has a page, and beside it the spec files and folders here."""
    from rewardspec.manual import names

    found = _beginning(incomplete, names())
    return [*found, *_files(incomplete)] if found else []


def findings(incomplete: str) -> list[str]:
    """Codes of findings."""
    from rewardspec.lint import codes

    return _beginning(incomplete, codes())


def schemes(incomplete: str) -> list[str]:
    """The schemes of the prelude."""
    from rewardspec.language.catalogue import schemes

    return _beginning(incomplete, [scheme.name for scheme in schemes()])


def kinds(incomplete: str) -> list[str]:
    """What `list` shows one kind of."""
    from rewardspec.language.catalogue import catalogue

    return _beginning(incomplete, [*dict.fromkeys(f"{entry.kind}s" for entry in catalogue()), "findings"])


def log_formats(incomplete: str) -> list[str]:
    """What writes logs."""
    from rewardspec.logs.registry import registered

    return _beginning(incomplete, list(registered()))


def words(*known: str) -> Callable[[str], list[str]]:
    """The completion of an option that takes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(incomplete, known)

    return complete


def dialects(incomplete: str) -> list[str]:
    """The trainers of `--dialect`."""
    from rewardspec.language.prelude import dialects

    return _beginning(incomplete, dialects())


def _beginning(incomplete: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str) -> list[str]:
    """The spec files and folders whose path begins so, without names that a shell would have to quote."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        found = sorted(Path(folder + slash or ".").iterdir())
    except OSError:
        return []
    shown = [f"{folder}{slash}{path.name}{'/' * path.is_dir()}" for path in found if path.name.startswith(start)]
    hidden = not start.startswith(".")
    return [
        text
        for text in shown
        if _SAFE.fullmatch(text)
        and text.endswith(("/", ".yaml", ".yml"))
        and not (hidden and text[len(folder + slash) :].startswith("."))
    ]
