"""What ms-swift's GRPO trainer writes with `--log_completions true`: `OUTPUT_DIR/completions.jsonl`.

Source: ms-swift 4.6.0.dev0 (3602360a5). swift/rlhf_trainers/grpo_trainer.py, `log`: each flush is one object of lists,
step, prompt, completion, a list for each reward function, advantages, and what was gathered besides. The last flush of
a run is written twice. swift/megatron/trainers/rollout_mixin.py and grpo_trainer.py, `_build_log_table`: the same with
gen_step. swift/ray/megatron/base_trainer.py, `_maybe_log_completions`: one object for each rollout, with gen_step and
the sum of its rewards. With `--report_to wandb` or `swanlab` the file is written, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

from rewardspec.logs.columns import step_of
from rewardspec.logs.format import LINES, Batches, Format, Head, Rollout, Row, number_in, without

STEPS = ("step", "gen_step")


def _matches(head: Head) -> bool:
    row = head.rows[0] if head.rows else {}
    if not head.has("prompt", "completion") or not any(head.has(step) for step in STEPS):
        return False
    if isinstance(row.get("prompt"), list):
        lists = [row.get("completion"), row.get("advantages"), next(row[step] for step in STEPS if step in row)]
        return all(isinstance(one, list) for one in lists)
    return set(row) == {"gen_step", "prompt", "completion", "reward"}


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    step = next((name for name in STEPS if name in row), None)
    lacks = [name for name in ("prompt", "completion") if name not in row] + ([] if step else ["step"])
    if lacks or step is None:
        raise ValueError(f"has no `{lacks[0]}`")
    if not isinstance(row["prompt"], list):
        yield Rollout(without(row, step), None, _step(step, row[step]))
        return
    size = len(row["prompt"])
    uneven = [name for name, value in row.items() if not isinstance(value, list) or len(value) != size]
    if uneven:
        raise ValueError(f"`{uneven[0]}` is no list of {size} values, one for each prompt")
    for place in range(size):
        one = {name: value[place] for name, value in row.items()}
        yield Rollout(without(one, step, "advantages"), None, _step(step, one[step]), number_in(one, "advantages"))


def _step(name: str, value: Any) -> int:
    try:
        return step_of(int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value)
    except ValueError as error:
        raise ValueError(f"`{name}` {error}") from None


def _settle(batches: Batches) -> Batches:
    """A flush that repeats the one before it is left out."""
    before = b""
    for batch in batches:
        kept: list[Rollout] = []
        for _, rows in groupby(batch, key=lambda rollout: rollout.place):
            flush = list(rows)
            digest = blake2b(digest_size=16)
            for rollout in flush:
                digest.update(repr((rollout.values, rollout.advantage)).encode("utf-8", "surrogateescape"))
            if len(flush) < 2 or digest.digest() != before:  # of one rollout: it is no flush
                kept += flush
            before = digest.digest()
        if kept:
            yield kept


def _lost(head: Head) -> Iterator[str]:
    if head.has("advantages"):
        yield (
            "steps: ms-swift logs the last batch of each `logging_steps`; a batch that is logged again is read once, "
            "and evaluations are between the steps, unmarked"
        )
        yield "weights: ms-swift logs rewards without their weights"
    else:
        yield "components: this trainer of ms-swift logs the sum, `reward`"
        yield "advantages: this trainer of ms-swift logs none"


MS_SWIFT = Format(
    name="ms-swift",
    about="ms-swift's `completions.jsonl`",
    marks="lists under step or gen_step, prompt, completion and advantages",
    kinds=(LINES,),
    matches=_matches,
    read=_read,
    lost=_lost,
    settle=_settle,
)
