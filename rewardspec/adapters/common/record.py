"""The record of a spec in a checkpoint, and whether a run under another spec may resume from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rewardspec._version import __version__
from rewardspec.adapters.common.binding import BindingError
from rewardspec.function import State
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import shorten

FILE = "rewardspec.json"  # in the folder of a checkpoint


def record(spec: Spec, seed: int, state: State | None = None) -> dict[str, object]:
    """The record of a spec to save with a checkpoint, as plain values. state: of a spec with `state:`."""
    carried = {} if state is None else {"state": state}
    return {
        "fingerprint": spec.fingerprint,
        "name": spec.name,
        "dialect": spec.dialect,
        "seed": seed,
        "rewardspec": __version__,
        "spec": spec.source.text,
        **carried,
    }


def compare(found: object, spec: Spec, where: str, option: str) -> str | None:
    """None if a checkpoint was trained under this spec; a line to log if it has no record.

    found: the record, None if there is none. where: the checkpoint, in words. option: the argument that resumes anyway.
    Raises BindingError for another spec.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("fingerprint"), str):
        return f"{where} has no record of its spec"
    if (other := other_spec(found, spec, where)) is None:
        return None
    then = shorten(str(found.get("rewardspec", "")))
    versions = (
        "" if then == __version__ else f"; it was written by rewardspec {then or 'of unknown version'}, and this is "
    )
    raise BindingError(
        f"{other}: resume with the same spec, constants and dialect, "
        f"or add {option}{versions and versions + __version__ + ', which may read the spec differently'}"
    )


def other_spec(found: object, spec: Spec, where: str) -> str | None:
    """A line if a checkpoint was trained under another spec; None if under this one, or if it has no record."""
    told = found.get("fingerprint") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(told, str) or told == spec.fingerprint:
        return None
    return (
        f"{where} was trained under {shorten(str(found.get('name', '')))!r}, fingerprint {shorten(told)}, and this run "
        f"is under {shorten(spec.name)!r}, fingerprint {spec.fingerprint}"
    )


def write(folder: str | os.PathLike, spec: Spec, seed: int, state: State | None = None) -> None:
    """Write the record into the folder of a checkpoint, created if needed; completely or not at all."""
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{FILE}.partial")
    partial.write_text(json.dumps(record(spec, seed, state), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read(folder: str | os.PathLike) -> object:
    """The record that `write` saved there; None if there is none that can be read."""
    try:
        return json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
