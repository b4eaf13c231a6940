"""The columns of a verl batch by name, and the advantages that a spec gives them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from rewardspec.adapters.common.binding import BindingError, check_rewards, listed
from rewardspec.adapters.common.lists import list_of_advantage, listed_columns, lists_of_turns, with_missing
from rewardspec.adapters.common.metrics import Metrics
from rewardspec.adapters.common.rollout_log import (
    PREFIX,
    Beside,
    kept_of,
    log_batch,
    numbered,
    outer_names,
    refuse_absent,
    writer_of,
)
from rewardspec.adapters.verl.texts import texts_of
from rewardspec.adapters.verl.turns import CALLS, TURNS, Written, items, of_turns
from rewardspec.logs.rollout_log import LogWriter, RolloutLog
from rewardspec.logs.rollout_table import NONE, Column, Texts
from rewardspec.spec import Spec, compile

logger = logging.getLogger(__name__)

FILLED_IN = ("score", "tokens", "truncated")  # the adapter fills them in
TOKEN = "reward_token"  # the column with the name of a rollout's reward token
MOST_SIZES = 100_000  # prompts whose number of rollouts is remembered
ITS_OWN = ("score", "acc")  # values of compute_score that verl itself reads


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of a batch. A rollout has one row, or several where an agent loop gives several outputs.

    rows: of each rollout, those with a response; the final output is last. groups: the uid of each.
    info: what `compute_score` returned for each. filled: what the trainer measured itself, by name.
    column: what else the trainer has of that name, one value for each rollout, or None. names: what
    `column` has, for messages. started: how many there would be if verl had dropped none. mask: of the rows of all
    rollouts in order, [R, L], 1 for tokens of the model. texts: `prompt` and `completion` of each rollout.
    """

    rows: Sequence[Sequence[int]]
    groups: Sequence[Hashable]
    info: Sequence[Mapping[str, object]]
    filled: Mapping[str, Callable[[], Sequence]]
    column: Callable[[str], Sequence | None]
    names: Callable[[], Iterable[str]]
    started: Callable[[], int]
    mask: Callable[[], torch.Tensor]
    texts: Callable[[], Mapping[str, Texts]]

    @cached_property
    def written(self) -> Written:
        """The turns of each rollout."""
        return Written(self.mask(), [len(rows) for rows in self.rows])

    @cached_property
    def scored(self) -> tuple[str, ...]:
        """The names that `compute_score` returned for any rollout, in its order."""
        return tuple(dict.fromkeys(name for info in self.info for name in info))

    def values(self, name: str, lists: bool = False) -> list | None:
        """The values of a name: scored, else measured by the trainer, else any other. None where there are none.

        lists: whether each value is a list.
        """
        value_of = items if lists else plain
        if name in self.scored:
            return [value_of(info.get(name)) for info in self.info]
        found = self.filled[name]() if name in self.filled else self.column(name)
        return None if found is None else [value_of(value) for value in found]


def plain(value):
    """A value out of its wrapper, and one number out of its tensor or array."""
    if type(value).__name__.startswith("NonTensor"):
        value = value.data
    if isinstance(value, torch.Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
        value = value.item()
    return value


class Advantages:
    """The advantages of a spec in one trainer. Names are checked with the first batch."""

    def __init__(self, spec: Spec, seed: int):
        self.spec, self.seed, self.function = spec, seed, compile(spec)
        self.state = self.function.initial_state()  # kept by the trainer's process, and saved with its checkpoints
        self.wanted = (*spec.columns, *([] if spec.condition is None else [TOKEN]))  # names of columns
        self.lists, self.list = listed_columns(spec), list_of_advantage(spec)
        self.checked = False
        self.result: Any = None  # of the last batch
        self.measured: dict[str, float] = {}  # metrics of the last batch
        self.spec_metrics = Metrics(spec)
        self.dropped = 0.0
        self.log: LogWriter | None = None

    def open_log(self, log: RolloutLog | None) -> None:
        """Write the rollouts of all batches into a log. Raises BindingError where it cannot be written."""
        self.log = None if log is None else writer_of(log, self.spec, "verl", "verl")
        self.wanted = (*self.wanted, *([] if log is None else outer_names(log)))

    def __call__(self, rollouts: Rollouts, mask: torch.Tensor, step: int, total_steps: int) -> torch.Tensor:
        """One advantage for each row, [N] float32 on the device of `mask` [N, L]; 0 for rows of no rollout.

        Of a spec whose advantages are those of turns, [N, L]: one for each token, 0 for tokens of no turn.
        """
        shape = mask.shape[:1] if self.list is None else mask.shape
        advantages = torch.zeros(shape, dtype=torch.float32)
        self.result, self.measured = None, {}
        started = max(rollouts.started(), len(rollouts.rows))
        self.dropped = 1 - len(rollouts.rows) / started if started else 0.0
        if rollouts.rows:
            columns = self.columns(rollouts)
            self._check_tokens(rollouts)
            before, groups = self.state, list(rollouts.groups)
            moment: dict[str, Any] = {"step": step, "total_steps": total_steps, "seed": self.seed}
            moment["lengths"] = self.lengths(rollouts)
            self.result = self.function(columns, groups, **moment, state=before)
            self.state = self.result.state
            self.measured = self.spec_metrics(
                columns, numbered(groups), self.result, self.state, **moment, before=before
            )
            if self.log is not None and self.log.wants(step):
                log_batch(
                    self.log,
                    self.spec,
                    columns,
                    self.result,
                    numbered(groups),
                    step=step,
                    total_steps=total_steps,
                    seed=self.seed,
                    before=before,
                    ids=[str(group) for group in groups],
                    beside=lambda: self._beside(rollouts),
                )
            rows = [row for rows in rollouts.rows for row in rows]
            found = self.result.advantages.float().cpu()
            if self.list is None:
                advantages[rows] = found.repeat_interleave(torch.tensor([len(rows) for rows in rollouts.rows]))
            else:
                lengths = self.result.lengths[self.list].cpu()
                found = rollouts.written.advantages(self.list, found, lengths, rollouts.groups)
                advantages[rows, : found.shape[1]] = found
        return advantages.to(mask.device)

    def _beside(self, rollouts: Rollouts) -> Beside:
        """For the rollout log: texts, and what was measured beside the spec's columns."""
        texts = rollouts.texts() if self.log is not None and self.log.log.text != NONE else {}
        more = {}
        for name in dict.fromkeys([*rollouts.scored, *FILLED_IN]):
            values = rollouts.values(name) if name not in self.spec.columns else None
            if values is not None and all(value is None or isinstance(value, int | float) for value in values):
                more[name] = Column("number", values)
            elif values is not None and all(value is None or isinstance(value, str) for value in values):
                more[name] = Column("text", values)
        if self.spec.condition is not None:
            more[f"{PREFIX}token"] = Column("name", rollouts.values(TOKEN))
        return Beside(texts, more, {n: values for n, values in self._kept(rollouts).items() if values is not None})

    def _kept(self, rollouts: Rollouts) -> dict[str, Sequence | None]:
        """The columns of the data set that the log keeps."""
        return {} if self.log is None else kept_of(self.log.log, rollouts.values)

    def metrics(self) -> dict[str, float]:
        """What to log of the last batch. rollouts_dropped: share of those that were started and have no response."""
        return self.measured | {f"{PREFIX}rollouts_dropped": self.dropped}

    def lengths(self, rollouts: Rollouts) -> dict[str, list[int]] | None:
        """How many turns each rollout has, for lists whose items are turns and that no column has."""
        return {name: rollouts.written.counts.tolist() for name in lists_of_turns(self.spec)} or None

    def columns(self, rollouts: Rollouts) -> dict[str, list]:
        """The values of the columns that the spec reads. Raises BindingError for columns that nothing measures."""
        found = {name: values for name in self.spec.columns if (values := self._values(rollouts, name)) is not None}
        if not self.checked or len(found) < len(self.spec.columns):
            self._check(rollouts, found)
            self.checked = True
        return with_missing(found, self.lists, lambda of: rollouts.written.counts.tolist() if of == self.list else None)

    def _values(self, rollouts: Rollouts, name: str) -> list | None:
        if name == "tokens" and name in self.lists and name not in rollouts.scored:
            return rollouts.written.tokens()
        values = rollouts.values(name, lists=name in self.lists)
        if values is None or name != CALLS or name in rollouts.scored or self.lists.get(name) != self.list:
            return values
        turns = rollouts.values(TURNS, lists=True)
        return of_turns(values, turns, rollouts.written.counts.tolist(), rollouts.groups)

    def _check_tokens(self, rollouts: Rollouts) -> None:
        if self.spec.condition is not None:
            given = rollouts.values(TOKEN) or [None]
            if any(not isinstance(name, str) for name in given):
                raise BindingError(
                    "rollouts ran without the reward tokens of `condition:`: the adapter is not in force in the "
                    "agent loop workers (set VERL_USE_EXTERNAL_MODULES=rewardspec.adapters.verl on their machines)"
                )

    def _check(self, rollouts: Rollouts, found: Mapping[str, Sequence]) -> None:
        scored, others = rollouts.scored, sorted({*rollouts.names()} - {*rollouts.scored, *FILLED_IN})
        try:
            check_rewards(self.spec, [], {*found, *scored, *others, *FILLED_IN}, "value of compute_score")
            if missing := [name for name in self.spec.columns if name not in found]:
                raise BindingError(f"nothing measures {listed(missing)}")
        except BindingError as error:
            where = "the first batch" if not self.checked else "this batch"
            raise BindingError(
                f"{error}\nin {where} compute_score returned {listed(scored)}; the data set and the trainer have "
                f"{listed(others)}; the adapter fills in {listed(FILLED_IN)}.\n"
                "Return a dict with these names from compute_score (reward.custom_reward_function), or rename "
                "them in the spec"
            ) from None
        if not self.checked:
            lacks = [name for name, values in self._kept(rollouts).items() if values is None]
            refuse_absent(lacks, {*scored, *others, *FILLED_IN}, "in the first batch there are")
        unread = [name for name in scored if name not in self.spec.columns and name not in ITS_OWN]
        if unread:
            logger.warning("rewardspec: compute_score also returns %s, which the spec does not read", listed(unread))


def pick(values: Sequence, places: Iterable[int]) -> list:
    return [values[place] for place in places]


# V1: rows are keys of TransferQueue


def note_sizes(trainer, batch) -> None:
    """Store how many rollouts are drawn for each prompt of a batch (a TensorDict), if the data set has that."""
    if "__rollout_n__" in batch.keys():  # noqa: SIM118 - a TensorDict
        known = trainer.__dict__.setdefault("_rewardspec_sizes", {})
        uids = [plain(uid) for uid in batch["uid"]]
        known.update(zip(uids, (int(plain(n)) for n in batch["__rollout_n__"]), strict=True))
        for uid in list(known)[:-MOST_SIZES]:  # of groups that were filtered
            del known[uid]


def _started(trainer, uids: set[str], prompts: int) -> int:
    """How many rollouts were drawn for a batch of so many prompts, of which `uids` are left."""
    known, otherwise = trainer.__dict__.get("_rewardspec_sizes", {}), trainer.config.actor_rollout_ref.rollout.n
    return sum(known.pop(uid, otherwise) for uid in uids) + max(0, prompts - len(uids)) * otherwise


def of_transfer_queue(
    trainer, batch, scores: Callable[[], Sequence[float]], wanted: Sequence[str], prompts: int = 0
) -> Rollouts:
    """The rollouts of a batch of the V1 trainers. Padding rows are none; outputs of one session are one rollout.

    batch: KVBatchMeta, whose keys are uid_session_output in the order of the rows. scores: the reward of each row.
    wanted: names of columns. prompts: how many the batch was drawn for.
    """
    import transfer_queue

    def fetch(names, keys=None):
        keys = batch.keys if keys is None else keys
        return transfer_queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=names)

    # rollout correction may have emptied masks of real responses: theirs count in their group's statistics
    fields = ["extra_fields", "response_mask", *(name for name in wanted if name not in FILLED_IN)]
    data = fetch(list(dict.fromkeys(fields)))
    there = set(data.keys())
    extra = (
        [plain(value) or {} for value in data["extra_fields"]] if "extra_fields" in there else [{}] * len(batch.keys)
    )
    masks = [row.sum().item() for row in data["response_mask"]]
    sessions: dict[tuple[str, str], list[tuple[int, int]]] = {}
    uids = set()
    for row, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        uid, session, output = key.rsplit("_", 2)
        if tag.get("is_padding", False):
            continue
        uids.add(uid)
        if masks[row]:
            sessions.setdefault((uid, session), []).append((int(output), row))
    rows = [[row for _, row in sorted(outputs)] for outputs in sessions.values()]
    last = [outputs[-1] for outputs in rows]

    def truncated():
        responses = list(fetch(["responses"])["responses"])
        return [cut_off(trainer, responses[row].tolist()) for row in last]

    def column(name):
        if name in there:
            return [data[name][row] for row in last]
        return [extra[row].get(name) for row in last] if any(name in extra[row] for row in last) else None

    def written():
        found = [data["response_mask"][row] for outputs in rows for row in outputs]
        return torch.nn.utils.rnn.pad_sequence(found, batch_first=True)

    def texts():
        fields = {"prompt": "prompts", "completion": "responses"}
        found = fetch([*fields.values()])
        return texts_of(trainer, {name: pick(found[field], last) for name, field in fields.items()})

    return Rollouts(
        rows=rows,
        groups=[uid for uid, _ in sessions],
        info=[extra[row].get("reward_extra_info") or {} for row in last],
        filled={
            "score": lambda: pick(scores(), last),
            "tokens": lambda: [sum(masks[row] for row in outputs) for outputs in rows],
            "truncated": truncated,
        },
        column=column,
        names=lambda: [*fetch(None, [batch.keys[last[0]]]).keys(), *extra[last[0]].keys()],
        started=lambda: _started(trainer, uids, prompts),
        mask=written,
        texts=texts,
    )


# V0: rows are those of a DataProto


def of_data_proto(
    trainer, data, mask: torch.Tensor, rewards: torch.Tensor, before: torch.Tensor | None = None
) -> Rollouts:
    """The rollouts of a batch of the V0 trainer, one for each row.

    before: the mask before rollout correction took tokens out of it, if it ran.
    """
    batch, others = data.batch, data.non_tensor_batch
    responses = batch["responses"]
    # rollout correction may have emptied masks of real responses: theirs count in their group's statistics
    mask = mask if before is None else before
    lengths = batch["attention_mask"][:, -responses.shape[1] :].sum(-1)
    rows = torch.nonzero(lengths > 0)[:, 0].tolist()

    def texts():
        prompts, there = batch["prompts"], batch["attention_mask"].bool()
        own = [prompts[row][there[row, : prompts.shape[1]]] for row in rows]
        return texts_of(trainer, {"prompt": own, "completion": [responses[row, : lengths[row]] for row in rows]})

    info = others.get("reward_extra_info")
    if info is None:  # of a reward model that ran after the rollouts
        keys = data.meta_info.get("reward_extra_keys", [])
        info = [{key: others[key][row] for key in keys} for row in range(len(data))]
    return Rollouts(
        rows=[[row] for row in rows],
        groups=[others["uid"][row] for row in rows],
        info=[info[row] or {} for row in rows],
        filled={
            "score": lambda: rewards.sum(-1)[rows].tolist(),
            "tokens": lambda: mask.sum(-1)[rows].tolist(),
            "truncated": lambda: [cut_off(trainer, responses[row, : lengths[row]].tolist()) for row in rows],
        },
        column=lambda name: [others[name][row] for row in rows] if name in others else None,
        names=lambda: others.keys(),
        started=lambda: len(data),
        mask=lambda: mask[rows],
        texts=texts,
    )


def cut_off(trainer, response: Sequence[int]) -> int:
    """1 for a response of the maximal length that does not end with the end token, else 0."""
    longest = trainer.config.actor_rollout_ref.rollout.response_length
    return int(len(response) >= longest and response[-1] != trainer.tokenizer.eos_token_id)
