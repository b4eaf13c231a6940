"""verl's checkpoints: each has a record of the spec that it was trained under."""

from __future__ import annotations

import logging
import os

from rewardspec.adapters.common import record
from rewardspec.adapters.common.state import restored
from rewardspec.adapters.verl.settings import NAME, may_resume_changed
from rewardspec.text.diagnostics import shorten

logger = logging.getLogger(__name__)


def mark_checkpoint(trainer) -> None:
    """Write the record into the checkpoint of this step, which is about to be written."""
    advantages = trainer.rewardspec
    folder = os.path.join(trainer.config.trainer.default_local_dir, f"global_step_{trainer.global_steps}")
    record.write(folder, advantages.spec, advantages.seed, advantages.state)


def check_checkpoint(trainer) -> None:
    """Take the state of the checkpoint that is about to be loaded.

    Raises BindingError if it was trained under another spec, or has no state for a spec that carries some.
    """
    folder = _resumed_from(trainer.config.trainer)
    if folder is None:
        return
    found = record.read(folder)
    if may_resume_changed(trainer.config):
        told = found.get("fingerprint") if isinstance(found, dict) else None
        logger.warning("rewardspec: resuming from %s, fingerprint %s", folder, shorten(str(told or "unknown")))
        trainer.rewardspec.state = restored(found, trainer.rewardspec.function, folder, anyway=True)
        return
    option = f"+algorithm.{NAME}.resume_changed=true"
    if told := record.compare(found, trainer.rewardspec.spec, folder, option):
        logger.warning("rewardspec: %s", told)
    trainer.rewardspec.state = restored(found, trainer.rewardspec.function, folder)


def _resumed_from(config) -> str | None:
    """The folder that verl will load, by its own rules; None if it starts from scratch or will refuse."""
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

    if config.resume_mode == "auto":
        return find_latest_ckpt_path(os.path.abspath(config.default_local_dir))
    if config.resume_mode == "resume_path" and isinstance(config.resume_from_path, str):
        return os.path.abspath(config.resume_from_path)
    return None
