"""Published specs by name: `gdpo/math` is the file `specs/gdpo/math.yaml` that ships with rewardspec.

A file or folder of that name wins. Where both could be meant, `Located.note` says which one is read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from os import PathLike, fsdecode
from pathlib import Path

from rewardspec.resources import resource
from rewardspec.text.diagnostics import nearest
from rewardspec.text.shown import shown

_NAME = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Located:
    """Where a spec is read from.

    name: of the file in messages. is_published: whether it ships with rewardspec and was named without a path.
    note: one line about what else the name could mean; empty if nothing.
    """

    path: str | PathLike[str]
    name: str
    is_published: bool = False
    note: str = ""


def located(given: str | PathLike[str]) -> Located:
    """The file of a spec: the one at this path, or else the published spec of this name."""
    text = fsdecode(given)  # a number would be an open file, and 0 the standard input
    shipped = published(text)
    if shipped is None:
        return Located(text, text)
    if os.path.exists(text):
        kind = "folder" if os.path.isdir(text) else "file"
        return Located(text, text, note=f"`{text}` is the {kind} here, not the published spec of this name")
    for suffix in _SUFFIXES:
        beside = Path(text + suffix)
        if beside.is_file() and not beside.samefile(shipped):
            note = f"`{text}` is the published spec; the file here is `{beside}`"
            return Located(shipped, text, True, note)
    return Located(shipped, text, True)


def published(name: str) -> Path | None:
    """The file of a published spec, `FOLDER/NAME`; None if there is none."""
    if not _NAME.fullmatch(name) or name.startswith("dialects/"):
        return None
    path = resource("specs") / f"{name}.yaml"
    return path if path.is_file() else None


def published_names() -> list[str]:
    """The names of all published specs, sorted: `gdpo/math`."""
    return [name_of_published(path) for path in published_files()]


def published_files() -> list[Path]:
    """The files of all published specs, one folder per paper."""
    return sorted(path for path in resource("specs").glob("*/*.yaml") if path.parent.name != "dialects")


def name_of_published(path: Path) -> str:
    """The name of a published spec: its path under `specs/`, without the suffix."""
    return path.relative_to(resource("specs")).with_suffix("").as_posix()


def nearest_published(text: str) -> str | None:
    """The help ``did you mean the published spec `...`?`` for a path without a file; None if none is near."""
    name = shown(text).removeprefix("./").removeprefix("specs/")
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    names = published_names()
    if "/" in name:
        near = nearest(name, names)
    elif Path(text).suffix:
        return None  # a file of the user's own that is not there
    else:
        stems = {known.partition("/")[2]: known for known in names}
        folders = {known.partition("/")[0] for known in names} - stems.keys()
        like = nearest(name, [*folders, *stems])
        if like in folders:
            some = [f"`{known}`" for known in names if known.startswith(f"{like}/")]
            return f"published specs of {like} are {', '.join(some[:3])}{', ...' * (len(some) > 3)}"
        near = stems.get(like or "")
    return None if near is None else f"did you mean the published spec `{near}`?"
