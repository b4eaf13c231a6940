"""The files of a rollout log, each computed again from itself alone, as docs/rollout_log.md does it, and replayed."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rewardspec

NAME = re.compile(r"step_(\d+)(_\d+)?\.parquet")


def logged_files(folder):
    """(columns, metadata) of each file by its name, in order; every batch is computed again and compared."""
    found = {}
    for path in sorted(Path(folder).iterdir()):
        assert NAME.fullmatch(path.name), path
        table = pq.read_table(path)
        columns, about = table.to_pydict(), json.loads(table.schema.metadata[b"rewardspec"])
        again(columns, about)
        found[path.name] = columns, about
    replayed(folder, [columns["rewardspec/advantage"] for columns, _ in found.values()])
    return found


def replayed(folder, advantages):
    """`rewardspec replay` of the folder, under the spec that is in it, gives the advantages that are in it."""
    spec = rewardspec.replay(folder).specs[0]
    sizes = [abs(value) for rows in advantages for value in flat(rows)]
    assert spec.logged.rollouts == sum(map(len, advantages))
    assert spec.logged.largest <= 1e-6 * max([1.0, *sizes])
    assert spec.notes == (), "state and draws are those of the log"


def again(columns, about):
    spec = rewardspec.loads(about["spec"], constants=about["constants"])
    fn = rewardspec.compile(spec, dialect=about["dialect"])
    assert fn.spec.fingerprint == about["fingerprint"] and about["columns"] == list(fn.spec.columns)
    moment = {name: about[name] for name in ("step", "total_steps", "seed", "state")}
    out = fn({name: columns[name] for name in about["columns"]}, columns["rewardspec/group"], **moment)
    close(out.nested(), columns["rewardspec/advantage"])
    for name, values in (out.shares or {}).items():
        assert flat(columns[f"rewardspec/share/{name}"]) == pytest.approx(values.tolist(), abs=1e-6)
    if about["state_after"] is not None:
        here = {state: value for state, value in out.state.items() if isinstance(value, float)}
        assert here == pytest.approx({name: about["state_after"][name] for name in here}, abs=1e-6)
    assert columns["rewardspec/copies"] == [out.copies.tolist()[group] for group in columns["rewardspec/group"]]
    assert columns["rewardspec/rollout"] == [*range(about["rollouts"])]


def named_alike(metrics, folder):
    """What a trainer logged of the last step is what `replay` shows of it, under the same names."""
    row = asdict(rewardspec.replay(folder).specs[0].steps[-1])
    known = {f"rewardspec/{name}": value for name, value in row.items() if name != "step" and value is not None}
    assert {name: metrics.get(name) for name in known} == pytest.approx(known, rel=1e-5, abs=1e-6)
    others = {name.removeprefix("rewardspec/") for name in metrics.keys() - known.keys()}
    others = {name for name in others if not name.startswith(("reward/", "weight/", "share/", "raw/", "state/"))}
    assert others <= {"most_copies", "rollouts_dropped"}, "the rest is of components, columns and states"
    return {name.removeprefix("rewardspec/") for name in known}


def close(found, expected):
    """Advantages of rollouts, or lists of them, to 1e-6."""
    shape = [[len(row) if isinstance(row, list) else None for row in rows] for rows in (found, expected)]
    assert shape[0] == shape[1]
    assert flat(found) == pytest.approx(flat(expected), abs=1e-6)


def flat(rows):
    return [value for row in rows for value in (row if isinstance(row, list) else [row])]
