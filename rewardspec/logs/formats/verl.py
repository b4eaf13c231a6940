"""What verl's trainers write to `trainer.rollout_data_dir` and `trainer.validation_data_dir`: `STEP.jsonl`.

Source: verl 0.9.1. V0: verl/trainer/ppo/ray_trainer.py, `_write_generations`: input, output, gts, score, step, and
what the reward function returned besides; rows in the order of the balanced batch, without an id of their groups. V1,
the default: verl/trainer/ppo/v1/trainer_base.py, where training has `uid` and nothing of the reward function, and
validation has both. `uid` is the key of a row, `{uid}_{session}_{output}`. Before 0.5 there was no gts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rewardspec.logs.format import LINES, Batches, Format, Head, Rollout, Row, step_in, without

OWN = ("input", "output", "score", "step")
_KEY = re.compile(r"(.+)_(\d+)_(\d+)", re.DOTALL)


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    lacks = [name for name in OWN if name not in row]
    if lacks:
        raise ValueError(f"has no `{lacks[0]}`")
    values = {"prompt": row["input"], "completion": row["output"], **without(row, "input", "output", "step")}
    key = _KEY.fullmatch(str(row.get("uid", "")))
    yield Rollout(values, key[1] if key else None, step_in(row))


def _settle(batches: Batches) -> Batches:
    """Of the outputs of one session the last: it is what verl compares in a group."""
    for batch in batches:
        last: dict[object, Rollout] = {}
        for place, rollout in enumerate(batch):
            key = _KEY.fullmatch(str(rollout.values.get("uid", "")))
            session: object = (key[1], key[2]) if key else place
            held = last.get(session)
            if held is None or _output(rollout) >= _output(held):
                last[session] = rollout
        yield list(last.values())


def _output(rollout: Rollout) -> int:
    key = _KEY.fullmatch(str(rollout.values.get("uid", "")))
    return int(key[3]) if key else 0


def _grouped(head: Head) -> bool:
    return any(_KEY.fullmatch(str(row.get("uid", ""))) for row in head.rows)


def _lost(head: Head) -> Iterator[str]:
    yield "advantages: verl logs none"
    extra = set(head.columns) - {*OWN, "gts", "uid", "request_id"}
    if not extra:
        yield "components: verl's log has the sum, `score`; what it was added from is not in it"
    if _grouped(head):
        yield "outputs: of the outputs of one session the last is read"


VERL = Format(
    name="verl",
    about="verl's `STEP.jsonl` of rollouts or validation",
    marks="keys input, output, score and step",
    kinds=(LINES,),
    matches=lambda head: head.has(*OWN),
    read=_read,
    lost=_lost,
    groups=lambda head: "" if _grouped(head) else None,
    settle=_settle,
    apart="rollouts and validation are two runs: name one folder",
)
