"""What TRL's GRPO trainer writes with `log_completions=True`: `OUTPUT_DIR/completions/completions_00012.parquet`.

Source: TRL 1.16.0, trl/trainer/grpo_trainer.py, `GRPOTrainer.log`: a pandas table with step, prompt, completion, a
column for each reward function, extra columns of `log_extra`, and advantage. Its rows are the last
`generation_batch_size` rollouts, at every `logging_steps`: so with `num_iterations` above 1 a file can repeat the one
before it, and generations between two logged steps are not in any file. The RLOO
trainer writes no file, only a table of wandb.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

from rewardspec.logs.format import PARQUET, Batches, Format, Head, Rollout, Row, number_in, step_in, text_of, without
from rewardspec.logs.records import records
from rewardspec.logs.rows import Unread
from rewardspec.text.shown import shown

OWN = ("step", "prompt", "completion", "advantage")


def _matches(head: Head) -> bool:
    return head.has(*OWN) and b"pandas" in head.metadata and b"rewardspec" not in head.metadata


def _read(row: Row, path: Path) -> Iterator[Rollout]:
    lacks = [name for name in OWN if name not in row]
    if lacks:
        raise ValueError(f"has no `{lacks[0]}`")
    values = {"prompt": text_of(row["prompt"]), "completion": text_of(row["completion"]), **without(row, *OWN)}
    yield Rollout(values, _key(row["prompt"]), step_in(row), number_in(row, "advantage"))


def _key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, default=repr)


def _settle(batches: Batches) -> Batches:
    """Adjacent rows with one prompt are a group; a batch that repeats the one before it is left out."""
    before = b""
    for batch in batches:
        digest = _digest(batch)
        if digest != before:
            for number, (_, rows) in enumerate(groupby(batch, key=lambda rollout: rollout.group)):
                for rollout in rows:
                    rollout.group = number
            yield batch
        before = digest


def _digest(batch: Sequence[Rollout]) -> bytes:
    found = blake2b(digest_size=16)
    for rollout in batch:
        found.update(repr((rollout.values, rollout.advantage)).encode("utf-8", "surrogateescape"))
    return found.digest()


def _survey(heads: Sequence[Head]) -> Iterator[str]:
    sizes: Counter[int] = Counter()
    where: dict[int, Path] = {}
    for head in heads:
        rows = (row for _, row in records(head.path, head.kind, ["step", "prompt"]) if not isinstance(row, Unread))
        for _, group in groupby(rows, key=lambda row: (row["step"], _key(row["prompt"]))):
            size = sum(1 for _ in group)
            sizes[size] += 1
            where.setdefault(size, head.path)
    if len(sizes) < 2:
        return
    usual = sizes.most_common(1)[0][0]
    double = {size: count for size, count in sizes.items() if size != usual and size % usual == 0}
    odd = {size: count for size, count in sizes.items() if size % usual}
    if double:
        size = min(double)
        yield (
            f"groups: {usual} adjacent rows have one prompt, but in {sum(double.values()):,} places {size} or more "
            f"have it, first in {shown(where[size].name)}: a prompt that was drawn twice in a row is one group here"
        )
    if odd:
        size = min(odd)
        yield (
            f"groups: {usual} adjacent rows have one prompt, but in {sum(odd.values()):,} places {size} have it, "
            f"first in {shown(where[size].name)}: the log cuts batches there, or has rows of an evaluation"
        )


TRL = Format(
    name="trl",
    about="TRL's `completions_*.parquet`",
    marks="columns step, prompt, completion and advantage in a table of pandas",
    kinds=(PARQUET,),
    matches=_matches,
    read=_read,
    lost=lambda head: (
        "steps: TRL logs the last batch of each `logging_steps`; batches between are not in the log, a batch that "
        "is logged again is read once, and an evaluation at a logged step replaces its file",
        "weights: TRL logs rewards without their weights",
    ),
    groups=lambda head: "groups: TRL logs no id of groups; adjacent rows of a step with one prompt are one group",
    settle=_settle,
    survey=_survey,
)
