"""Files that torch.save wrote, loaded so that no code of theirs can run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rewardspec.logs.rows import BadLog
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown


def load(path: Path) -> dict[str, Any]:
    """The mapping in a file. Its tensors stay on disk until they are read. Raises BadLog, OSError.

    `weights_only=True` refuses every name but those of tensors and plain values, before anything is called.
    """
    import pickle

    import torch

    try:
        held = torch.load(path, weights_only=True, mmap=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        name = re.search(r"(?:GLOBAL|class|instruction) (\S+)", str(error))
        what = f"`{shorten(name[1].strip('`'), 60)}`" if name else shorten(str(error), 60)
        raise BadLog(
            f"{shown(path)} is not opened: its pickle needs {what}. Only tensors, texts, numbers, lists and mappings "
            "are read, because other things can run code: load it where you trust it, and save it with those alone"
        ) from None
    except (RuntimeError, ValueError, EOFError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise BadLog(f"{shown(path)} is not a readable torch file: {shorten(str(error), 80)}") from None
    if not isinstance(held, dict):
        raise BadLog(f"{shown(path)} holds {shorten(type(held).__name__)}, not a mapping of rollouts")
    return held
