"""What both of verl's trainers do with a spec besides advantages: checkpoints, and the filter of groups (V1)."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter

from rewardspec.adapters import record
from rewardspec.adapters.binding import BindingError
from rewardspec.adapters.signal import Judge
from rewardspec.adapters.verl_settings import NAME, may_resume_changed
from rewardspec.text.diagnostics import shorten

logger = logging.getLogger(__name__)


# Checkpoints


def mark_checkpoint(trainer) -> None:
    """Keep the fingerprint in the checkpoint of this step, which is about to be written."""
    spec, seed = trainer.rewardspec.spec, trainer.rewardspec.seed
    folder = os.path.join(trainer.config.trainer.default_local_dir, f"global_step_{trainer.global_steps}")
    record.write(folder, spec, seed)


def check_checkpoint(trainer) -> None:
    """Raise BindingError if the checkpoint that is about to be loaded was trained under another spec."""
    folder = _resumed_from(trainer.config.trainer)
    if folder is None:
        return
    found = record.read(folder)
    if may_resume_changed(trainer.config):
        told = found.get("fingerprint") if isinstance(found, dict) else None
        logger.warning("rewardspec: going on from %s, fingerprint %s", folder, shorten(str(told or "unknown")))
        return
    way_out = f"+algorithm.{NAME}.resume_changed=true"
    if told := record.compare(found, trainer.rewardspec.spec, folder, way_out):
        logger.warning("rewardspec: %s", told)


def _resumed_from(config) -> str | None:
    """The folder that verl will load, by its own rules; None where it starts afresh, or will refuse."""
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

    if config.resume_mode == "auto":
        return find_latest_ckpt_path(os.path.abspath(config.default_local_dir))
    if config.resume_mode == "resume_path" and isinstance(config.resume_from_path, str):
        return os.path.abspath(config.resume_from_path)
    return None


# Groups without signal


class Filter:
    """In place of verl's test of one score: which finished groups have no signal under the spec."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.judge = Judge(trainer.rewardspec.spec, trainer.rewardspec.seed)

    def __call__(self, buffer, partition_id: str) -> tuple[set[str], Counter]:
        """uids of groups to draw anew, and how many of these have which weighted total.

        A finished group stays as it is, so verl's own cache keeps what was found: a total, None for a group to keep.
        """
        finished, known = buffer.finished_keys[partition_id], buffer._dapo_classification_cache[partition_id]
        for uid in known.keys() - finished:
            del known[uid]
        if new := finished - known.keys():
            known.update(dict.fromkeys(new, 0.0))  # nothing was measured: no signal
            known.update(self._judged(buffer, partition_id, new))
        totals = {uid: total for uid, total in known.items() if total is not None}
        return set(totals), Counter(totals.values())

    def _judged(self, buffer, partition_id: str, uids: set[str]) -> dict[str, float | None]:
        import transfer_queue
        from transfer_queue import KVBatchMeta

        from rewardspec.adapters.verl_rollouts import of_transfer_queue

        partition, advantages = buffer.partitions[partition_id], self.trainer.rewardspec
        keys = [key for key in partition if key.split("_")[0] in uids]
        if not keys:
            return {}
        batch = KVBatchMeta(partition_id=partition_id, keys=keys, tags=[partition[key] for key in keys])

        def scores():
            rows = transfer_queue.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores"])
            return [row.sum().item() for row in rows["rm_scores"]]

        rollouts = of_transfer_queue(self.trainer, batch, scores, advantages.wanted)
        columns = advantages.columns(rollouts)
        places: dict[str, list[int]] = {}
        for place, uid in enumerate(rollouts.groups):
            places.setdefault(uid, []).append(place)
        found = {}
        for uid, at in places.items():
            group = {name: [values[i] for i in at] for name, values in columns.items()}
            moment = self.trainer.global_steps, self.trainer.total_training_steps
            try:
                judged = self.judge(group, len(at), *moment)
            except self.judge.function.RolloutError as error:
                raise BindingError(f"algorithm.filter_groups: in group {uid}: {error}") from error
            found[uid] = None if judged.signal else 0.0 if math.isnan(judged.total) else judged.total
        return found
