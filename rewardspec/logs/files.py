"""The files of a log: those that are named, and those in folders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from rewardspec.logs.rows import BadLog
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

ENDINGS = (".parquet", ".pq", ".jsonl", ".csv", ".tsv", ".arrow", ".pt")  # of files that are taken from a folder
MOST_FILES = 100_000


def log_files(paths: Sequence[Path]) -> tuple[list[Path], set[Path]]:
    """The files of these paths, those of a folder in the order of the numbers in their names; which were named."""
    problems, found, named = [], [], set()
    for path in paths:
        if path.is_dir():
            try:
                inner = _in_folder(path)
            except BadLog as error:
                problems.append(str(error))
                continue
            if not inner:
                problems.append(f"{shown(path)} has no file that ends in {', '.join(ENDINGS)}")
            found += inner
        elif path.is_file():
            found.append(path)
            named.add(path)
        else:
            problems.append(f"there is no {shown(path)}" if not path.exists() else f"{shown(path)} is not a file")
    if not paths:
        problems.append("no file or folder is named")
    if problems:
        raise BadLog("\n".join(problems))
    return list(dict.fromkeys(found)), named


def _in_folder(folder: Path) -> list[Path]:
    if (folder / "dataset_dict.json").is_file():
        inner = sorted(one.name for one in folder.iterdir() if (one / "state.json").is_file())
        raise BadLog(f"{shown(folder)} has several data sets: name one, as {shown(folder / (inner or ['train'])[0])}")
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        return _saved(folder)
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if is_log(name)]
        if len(found) > MOST_FILES:
            raise BadLog(f"{shown(folder)} has more than {MOST_FILES:,} files: name a folder in it")
    return sorted(found, key=lambda path: _natural(str(path)))


def is_log(name: str) -> bool:
    """Whether a file of a folder is looked into, by its name."""
    return not name.startswith(".") and name.lower().endswith(ENDINGS)


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"([0-9]{1,18})", name)]


def _saved(folder: Path) -> list[Path]:
    """The files of a folder that `datasets` saved, in its order."""
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        names = [one["filename"] for one in state["_data_files"]]
        assert all(isinstance(name, str) for name in names), "names are texts"
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise BadLog(f"{shown(folder / 'state.json')} does not name the files of a data set") from None
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise BadLog(f"{shown(folder / 'state.json')} names a file in another folder: {shorten(outside[0])}")
    return [folder / name for name in names]
