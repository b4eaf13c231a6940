"""What was measured of a piece of a file, as JSON: it outlives the process that measured it, and nothing in it runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardspec.logs.names import Keys
from rewardspec.logs.parts import Part
from rewardspec.logs.rows import JSON_TEXT
from rewardspec.scoring.measure import Measured, Names, Outcome, measured
from rewardspec.scoring.packed import join, pack, plain, size
from rewardspec.scoring.parquet import Kinds, joined, schema_of
from rewardspec.scoring.scorer import Scorer
from rewardspec.spec import Spec


def piece_measured(
    scorer: Scorer, names: Names, parts: Iterable[Part], earlier: Measured | None = None, to_parquet: bool = False
) -> Measured:
    """The rows of a piece, measured. Raises ScoringError, BadLog.

    earlier: what other functions measured of it; their bad rows are not asked again. to_parquet: see `measured`.
    """
    found: list[Measured] = []
    for part in parts:
        known: dict[int, tuple[str, Outcome]] = {}
        if earlier is not None and any(i in earlier.bad for i in range(part.first, part.first + len(part))):
            digests = part.digests(part.rows())
            known = {i: (digests[i], reason) for i in range(len(part)) if (reason := earlier.bad.get(part.first + i))}
        one = measured(scorer, names, part, known, to_parquet)
        one.lines = []
        found.append(one)
    whole = _joined(found or [measured(scorer, names, Part(Path(), 0, []), {}, to_parquet)])
    if earlier is not None:
        whole.columns = earlier.columns | whole.columns
        whole.asked += earlier.asked
        whole.recalled += earlier.recalled
    return whole


def _joined(parts: Sequence[Measured]) -> Measured:
    whole = Measured(0, sum(part.count for part in parts), Keys(), {}, [], [], {})
    for part in parts:
        whole.keys.join(part.keys)
        whole.bad |= {part.first + i: reason for i, reason in part.bad.items()}
        whole.groups += part.groups
        whole.steps += part.steps
        whole.asked += part.asked
        whole.recalled += part.recalled
    whole.columns = {name: join([part.columns[name] for part in parts]) for name in parts[0].columns}
    kinds = [part.kinds for part in parts if part.kinds is not None]
    whole.kinds = joined(kinds) if kinds else None
    return whole


def to_json(found: Measured) -> bytes:
    kept = {
        "count": found.count,
        "top": list(found.keys.top),
        "found": list(found.keys.found),
        "bad": list(found.bad.items()),
        "groups": found.groups,
        "steps": found.steps,
        "columns": {name: plain(column, 0, size(column)) for name, column in found.columns.items()},
        "kinds": None if found.kinds is None else [list(found.kinds), _schema(found.kinds)],
        "asked": found.asked,
        "recalled": found.recalled,
    }
    return json.dumps(kept, separators=(",", ":")).encode()


def of_json(spec: Spec, data: bytes) -> Measured:
    kept: Mapping[str, Any] = json.loads(data)
    keys = Keys(dict.fromkeys(kept["top"]), dict.fromkeys(kept["found"]))
    columns = {name: pack(values, spec.program.columns[name].level.listed) for name, values in kept["columns"].items()}
    bad = {i: reason for i, reason in kept["bad"]}
    groups = [_id(group) for group in kept["groups"]]
    kinds = None if kept["kinds"] is None else _kinds(*kept["kinds"])
    asked = {name: kept.get(name, 0) for name in ("asked", "recalled")}
    return Measured(0, kept["count"], keys, bad, groups, kept["steps"], columns, kinds=kinds, **asked)


def _id(group: Any) -> Hashable:
    """A group's id; those of other values than texts and numbers are tuples."""
    return tuple(group) if isinstance(group, list) else group


def _schema(kinds: Kinds) -> str:
    return base64.b64encode(schema_of(kinds).serialize().to_pybytes()).decode()


def _kinds(names: Sequence[str], schema: str) -> Kinds:
    import pyarrow

    fields = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(schema)))
    text = [(field.metadata or {}).items() >= JSON_TEXT.items() for field in fields]
    return {name: None if as_text else field.type for name, field, as_text in zip(names, fields, text, strict=True)}
