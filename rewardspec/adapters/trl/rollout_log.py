"""The rollout log of TRL's trainers: the rollouts of all processes, written by the main one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.rollout_log import (
    Beside,
    kept_of,
    log_batch,
    outer_names,
    refuse_absent,
    writer_of,
)
from rewardspec.adapters.trl.checks import columns_of
from rewardspec.adapters.trl.turns import plain
from rewardspec.function import Result
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.logs.rollout_table import Column


def begin_log(trainer, log: RolloutLog | None) -> None:
    """Give a trainer its log. Raises BindingError where it cannot be written, or where processes differ.

    Columns of a data set that streams are known in the first batch.
    """
    problem = trainer.rollout_log = trainer.log_writer = None
    trainer.kept_checked = False  # whether the columns to keep were found in a batch
    if log is not None and trainer.accelerator.is_main_process:
        try:
            if log.columns:
                known = columns_of(trainer.train_dataset, bool(trainer.args.remove_unused_columns))
                lacks = [
                    name for name in log.columns if known is not None and not {name, name.partition(".")[0]} & known
                ]
                refuse_absent(lacks, known or (), "the data set has")
            trainer.log_writer = writer_of(log, trainer.spec, "trl", "trl")
        except BindingError as error:
            problem = str(error)
    if trainer.accelerator.num_processes > 1:  # a process that gathers alone would wait forever
        found = gather_object([(log is not None, problem)])
        problem = next((said for _, said in found if said), None)
        if len({there for there, _ in found}) > 1:
            problem = "some processes have a `rollout_log` and others have none: pass it to all"
    if problem:
        raise BindingError(problem)
    trainer.rollout_log = log


def log_rollouts(
    trainer,
    columns: dict,
    result: Result,
    group_size: int,
    moment: dict[str, Any],
    inputs: list[dict],
    lengths: dict[str, list[int]],
    penalty: torch.Tensor | None,
    tokens: list[str] | None,
) -> None:
    """Write a generation batch. inputs, lengths: rows, `tokens` and `truncated` of this process's rollouts."""
    kept = _kept(trainer, inputs)
    local = torch.tensor(list(lengths.values()), device=trainer.accelerator.device).T
    counted = trainer.accelerator.gather(local).cpu().numpy()
    writer = trainer.log_writer
    if writer is None or not writer.wants(moment["step"]):
        return
    n = len(counted)

    def beside() -> Beside:
        more = {name: Column("number", counted[:, k]) for k, name in enumerate(lengths)}
        if penalty is not None:
            more["rewardspec/kl_penalty"] = Column("number", penalty.double().cpu().numpy())
        if tokens is not None:
            more["rewardspec/token"] = Column("name", tokens)
        held = {name: list(trainer._logs[name]) for name in ("prompt", "completion")}  # of all processes
        return Beside({name: values[-n:] for name, values in held.items() if len(values) >= n}, more, kept)

    groups = [row // group_size for row in range(n)]
    log_batch(writer, trainer.spec, columns, result, groups, **moment, beside=beside)


def _kept(trainer, inputs: list[dict]) -> dict[str, Sequence[Any]]:
    """The columns of the data set that the log keeps, of all processes. Raises BindingError in the first batch."""
    log = trainer.rollout_log
    if not log.columns:
        return {}
    names = outer_names(log)
    rows = [{name: plain(row[name]) for name in names if name in row} for row in inputs]
    there = {name for row in inputs for name in row}
    if trainer.accelerator.num_processes > 1:
        rows, there = gather_object(rows), {*gather_object([*there])}
    known = {name for row in rows for name in row}
    found = kept_of(log, lambda name: [row.get(name) for row in rows] if name in known else None)
    if not trainer.kept_checked:
        refuse_absent([name for name, values in found.items() if values is None], there, "the first rows have")
        trainer.kept_checked = True
    return {name: values for name, values in found.items() if values is not None}
