"""The rollout log of TRL's trainers: the rollouts of all processes, written by the main one."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.rollout_log import Beside, log_batch, writer_of
from rewardspec.function import Result
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.logs.rollout_table import Column


def begin_log(trainer, log: RolloutLog | None) -> None:
    """Give a trainer its log. Raises BindingError where it cannot be written, or where processes differ."""
    problem = trainer.rollout_log = trainer.log_writer = None
    if log is not None and trainer.accelerator.is_main_process:
        try:
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
    lengths: dict[str, list[int]],
    penalty: torch.Tensor | None,
    tokens: list[str] | None,
) -> None:
    """Write a generation batch. lengths: `tokens` and `truncated` of this process's rollouts."""
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
        return Beside({name: values[-n:] for name, values in held.items() if len(values) >= n}, more)

    groups = [row // group_size for row in range(n)]
    log_batch(writer, trainer.spec, columns, result, groups, **moment, beside=beside)
