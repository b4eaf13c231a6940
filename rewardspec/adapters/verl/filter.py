"""verl's filter of groups (V1): it drops the groups that are dead under the spec."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.liveness import LivenessTest


class Filter:
    """The finished groups that are dead under the spec; it replaces verl's test of one score."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.liveness = LivenessTest(trainer.rewardspec.spec, trainer.rewardspec.seed)

    def __call__(self, buffer, partition_id: str) -> tuple[set[str], Counter]:
        """The uids of groups to replace, and a count of them by weighted total.

        A finished group does not change, so verl's own cache stores the result: a total, or None for a group to keep.
        """
        finished, known = buffer.finished_keys[partition_id], buffer._dapo_classification_cache[partition_id]
        for uid in known.keys() - finished:
            del known[uid]
        if new := finished - known.keys():
            known.update(dict.fromkeys(new, 0.0))  # nothing was measured: dead
            known.update(self._totals(buffer, partition_id, new))
        totals = {uid: total for uid, total in known.items() if total is not None}
        return set(totals), Counter(totals.values())

    def _totals(self, buffer, partition_id: str, uids: set[str]) -> dict[Hashable, float | None]:
        import transfer_queue
        from transfer_queue import KVBatchMeta

        from rewardspec.adapters.verl.rollouts import of_transfer_queue

        partition, advantages = buffer.partitions[partition_id], self.trainer.rewardspec
        keys = [key for key in partition if key.split("_")[0] in uids]
        if not keys:
            return {}
        batch = KVBatchMeta(partition_id=partition_id, keys=keys, tags=[partition[key] for key in keys])

        def scores():
            rows = transfer_queue.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores"])
            return [row.sum().item() for row in rows["rm_scores"]]

        rollouts = of_transfer_queue(self.trainer, batch, scores, advantages.wanted)
        columns, lengths = advantages.columns(rollouts), advantages.lengths(rollouts) or {}
        places: dict[Hashable, list[int]] = {}
        for place, uid in enumerate(rollouts.groups):
            places.setdefault(uid, []).append(place)
        found: dict[Hashable, float | None] = {}
        for uid, at in places.items():
            group = {name: [values[i] for i in at] for name, values in columns.items()}
            counts = {name: [values[i] for i in at] for name, values in lengths.items()} or None
            moment = self.trainer.global_steps, self.trainer.total_training_steps
            try:
                group_is = self.liveness(group, len(at), *moment, lengths=counts)
            except self.liveness.function.RolloutError as error:
                raise BindingError(f"algorithm.filter_groups: in group {uid}: {error}") from error
            found[uid] = None if group_is.live else 0.0 if math.isnan(group_is.total) else group_is.total
        return found
