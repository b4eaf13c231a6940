"""Our own rollout log, `step_00000300.parquet`: docs/rollout_log.md.

A file is one batch, the one that the spec was called with. Its metadata, under the key `rewardspec`, has the text of
the spec. Columns of the log begin with `rewardspec/`; all others have the names that the spec gives them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rewardspec.logs.format import PARQUET, Format, Head, Rollout, Row, number_in, step_in, without
from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Call, Trained
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

SCHEMA = 1
STEP, GROUP, ADVANTAGE = "rewardspec/step", "rewardspec/group", "rewardspec/advantage"


def _about(head: Head) -> dict[str, Any]:
    """The metadata of a file. Raises BadLog."""
    try:
        found = json.loads(head.metadata.get(b"rewardspec", b"{}"))
        if not isinstance(found, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise BadLog(f"{shown(head.path)}: its metadata, under `rewardspec`, is no JSON object") from None
    schema = found.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise BadLog(
            f"{shown(head.path)} has schema {shorten(repr(schema))}, and this version reads up to {SCHEMA}: "
            "update rewardspec"
        )
    return found


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    if GROUP not in row:
        raise ValueError(f"has no `{GROUP}`")
    values = without(row, STEP, GROUP, ADVANTAGE, "rewardspec/rollout")
    listed = row.get(ADVANTAGE)
    advantage = listed if isinstance(listed, list) else number_in(row, ADVANTAGE)
    yield Rollout(values, row[GROUP], step_in(row, STEP), advantage)


def _choose(heads: Sequence[Head]) -> tuple[list[Head], list[str]]:
    """The files that no later run has superseded, in the order of their batches."""
    about = {head.path: _about(head) for head in heads}
    runs: dict[object, tuple[float, int]] = {}
    for one in about.values():
        runs.setdefault(one.get("run"), (_number(one.get("started")), int(_number(one.get("first_step")))))
    kept = []
    for head in heads:
        own = about[head.path]
        began, step = runs[own.get("run")][0], _number(own.get("step"))
        if not any(started > began and first <= step for started, first in runs.values()):
            kept.append(head)
    kept.sort(key=lambda head: (_number(about[head.path].get("step")), _number(about[head.path].get("batch"))))
    gone = len(heads) - len(kept)
    said = [f"files: {gone:,} are of a run that was resumed before them, and are not read"] if gone else []
    prints = {about[head.path].get("fingerprint") for head in kept}
    if len(prints) > 1:
        said.append(f"spec: the files were written under {len(prints)} specs; `spec` is that of the last")
    return kept, said


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def _spec(head: Head) -> Trained | None:
    about = _about(head)
    text, constants = about.get("spec"), about.get("constants")
    if not isinstance(text, str):
        return None
    known = {name: str(value) for name, value in constants.items()} if isinstance(constants, dict) else {}
    advantage, dialect = (about[key] if isinstance(about.get(key), str) else None for key in ("advantage", "dialect"))
    total = about.get("total_steps")
    return Trained(text, known, advantage, dialect, total if isinstance(total, int) else None)


def _call(head: Head) -> Call | None:
    about = _about(head)
    fingerprint, total, seed, state = (about.get(key) for key in ("fingerprint", "total_steps", "seed", "state"))
    if not isinstance(fingerprint, str):
        return None
    return Call(
        fingerprint,
        total if isinstance(total, int) else None,
        seed if isinstance(seed, int) else 0,
        state if isinstance(state, dict) else None,
    )


def _lost(head: Head) -> Iterator[str]:
    about = _about(head)
    if about.get("text") in ("hash", "none"):
        yield f"texts: the run logged {'their hashes' if about['text'] == 'hash' else 'none'}"
    if isinstance(about.get("every"), int) and about["every"] > 1:
        yield f"steps: the run logged every {about['every']}th"


OWN = Format(
    name="rewardspec",
    about="the rollout log of this package",
    marks="metadata under the key rewardspec",
    kinds=(PARQUET,),
    matches=lambda head: b"rewardspec" in head.metadata,
    read=_read,
    lost=_lost,
    groups=lambda head: "",
    choose=_choose,
    alone=True,
    spec=_spec,
    call=_call,
)
