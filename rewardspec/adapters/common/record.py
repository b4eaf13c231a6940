"""What a checkpoint says of the spec that it was trained under, and whether a run may go on from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rewardspec._version import __version__
from rewardspec.adapters.common.binding import BindingError
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import shorten

FILE = "rewardspec.json"  # in the folder of a checkpoint


def record(spec: Spec, seed: int) -> dict[str, object]:
    """Plain values to keep with a checkpoint."""
    return {
        "fingerprint": spec.fingerprint,
        "name": spec.name,
        "dialect": spec.dialect,
        "seed": seed,
        "rewardspec": __version__,
        "spec": spec.source.text,
    }


def compare(found: object, spec: Spec, where: str, way_out: str) -> str | None:
    """None where a checkpoint was trained under this spec, else a line to log, where it does not say.

    found: what `record` gave then, None if there is nothing. where: the checkpoint, in words. way_out: how a run
    is told to go on all the same. Raises BindingError for another spec.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("fingerprint"), str):
        return f"{where} does not say what spec it was trained under"
    if found["fingerprint"] == spec.fingerprint:
        return None
    theirs, then = shorten(str(found.get("name", ""))), shorten(str(found.get("rewardspec", "")))
    versions = "" if then == __version__ else f"; it was by rewardspec {then or 'of unknown version'}, and this is "
    raise BindingError(
        f"{where} was trained under {theirs!r}, fingerprint {shorten(found['fingerprint'])}, and this run is under "
        f"{shorten(spec.name)!r}, fingerprint {spec.fingerprint}: go on with the same spec, constants and dialect, or "
        f"say {way_out}{versions and versions + __version__ + ', which may read one spec in two ways'}"
    )


def write(folder: str | os.PathLike, spec: Spec, seed: int) -> None:
    """Keep the record in the folder of a checkpoint, which is made. It is there whole, or not at all."""
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{FILE}.partial")
    partial.write_text(json.dumps(record(spec, seed), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read(folder: str | os.PathLike) -> object:
    """What `write` kept there; None where nothing is, or nothing that can be read."""
    try:
        return json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
