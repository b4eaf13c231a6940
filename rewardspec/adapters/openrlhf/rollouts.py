"""The columns of an OpenRLHF batch by name, and the advantages that a spec gives them."""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import torch

from rewardspec.adapters.common.binding import BindingError, check_rewards, listed
from rewardspec.adapters.common.lists import list_of_advantage, listed_columns, lists_of_turns
from rewardspec.adapters.common.metrics import Metrics
from rewardspec.adapters.common.rollout_log import Beside, log_batch, writer_of
from rewardspec.adapters.openrlhf.checks import FILLED_IN, ITS_OWN, LATER, OVERWRITTEN
from rewardspec.adapters.openrlhf.kept import Row, columns_of
from rewardspec.adapters.openrlhf.turns import Turns, column, token_advantages
from rewardspec.logs.rollout_log import LogWriter, RolloutLog
from rewardspec.logs.rollout_table import NONE, Column
from rewardspec.spec import Spec, compile

logger = logging.getLogger(__name__)

SWALLOWED = (
    "OpenRLHF hides what a reward_func raises: look for `Failed to fetch reward` in the logs of the rollout actors"
)


class Advantages:
    """The advantages of a spec in one experience maker. `step` and `total_steps` are set for each batch."""

    def __init__(self, spec: Spec, seed: int = 0):
        self.spec, self.seed, self.function = spec, seed, compile(spec)
        self.state = self.function.initial_state()  # kept by the trainer's process, and saved with its checkpoints
        self.lists, self.list = listed_columns(spec), list_of_advantage(spec)
        self.turns: Sequence[Turns] = []  # of each rollout of the batch, by its place
        self.step: int | None = None
        self.total_steps: int | None = None
        self.result: Any = None  # of the last batch
        self.measured: dict[str, float] = {}  # metrics of the last batch
        self.spec_metrics = Metrics(spec)
        self.log: LogWriter | None = None
        self.tokenizer: Any = None
        self.kept: list[Row | None] = []  # of each rollout by its place, columns of the data set
        self.told: set[str] = set()  # names that the spec does not read, and that a warning has named

    def open_log(self, log: RolloutLog | None, tokenizer) -> None:
        """Write the rollouts of all batches into a log. Raises BindingError where it cannot be written.

        tokenizer: the trainer's. It is copied for the thread that writes, because two threads cannot use one.
        """
        self.log = None if log is None else writer_of(log, self.spec, "openrlhf", "openrlhf")
        self.tokenizer = None if log is None or log.text == NONE else copy.deepcopy(tokenizer)

    def check(self, samples: Sequence, group_size: int, rewarded: bool) -> None:
        """Raise BindingError unless rollouts are whole groups and each has all columns that the spec reads.

        samples: Experiences of one rollout each. rewarded: whether rewards come with the rollouts, not later from a
        reward model. OpenRLHF concatenates the values of rollouts and does not notice gaps, so this comes first.
        """
        problems = unlike_groups(samples, group_size)
        if rewarded:
            problems += self._gaps("a reward", [sample.rewards is not None for sample in samples])
        names = list(dict.fromkeys(name for sample in samples for name in sample.info))
        turns = [sample.rewardspec_turns for sample in samples] if self.lists else []
        listed_names = [name for name in self.lists if any(name in found.lists for found in turns)]
        measured = {*FILLED_IN, *LATER, *names} - (self.lists.keys() - {"tokens"}) | {*listed_names}
        try:
            check_rewards(self.spec, [], measured, "value of extra_logs")
        except BindingError as error:
            given = [name for name in names if name not in ("reward", *ITS_OWN)]
            problems.append(
                f"{error}\nextra_logs hold {listed(given)} in this batch; return a number under this name there, for "
                f"every rollout (NaN where it was not measured). {SWALLOWED}"
            )
        for name in listed_names:
            problems += self._gaps(f"a list `{name}`", [name in found.lists for found in turns])
        for name in self.spec.columns:
            if name in self.lists:
                continue
            if name in names and (name in OVERWRITTEN or (name == "reward" and _hidden_reward(samples))):
                problems.append(f"`{name}` of extra_logs is overwritten by OpenRLHF's own: give it another name")
            elif name in names:
                problems += self._gaps(f"`{name}`", [name in sample.info for sample in samples])
        if problems:
            raise BindingError("\n".join(problems))
        empty = {name for name in listed_names if all(x is None for found in turns for x in found.lists[name])}
        if new := empty - self.told:
            self.told |= new
            logger.warning("rewardspec: no step of this batch measured %s", listed(sorted(new)))
        known = {*self.spec.columns, *self.told, "reward", *ITS_OWN, *OVERWRITTEN}
        if unread := [name for name in names if name not in known]:
            self.told |= {*unread}
            logger.warning("rewardspec: extra_logs also hold %s, which the spec does not read", listed(unread))

    def _gaps(self, what: str, there: Sequence[bool]) -> list[str]:
        if all(there):
            return []
        first = list(there).index(False)
        return [
            f"{sum(there)} of {len(there)} rollouts have {what}; the first without is rollout {first}. {SWALLOWED}; "
            "or return it for every rollout (NaN where it was not measured)"
        ]

    def __call__(self, experiences: Sequence, group_size: int) -> list[torch.Tensor]:
        """The advantages of each experience's rollouts, [B] float32. `Experience.index`: their places in the batch.

        Of a spec whose advantages are those of turns, of their tokens, [B, A].
        """
        places = torch.tensor(list(itertools.chain.from_iterable(e.index for e in experiences)), dtype=torch.long)
        n = len(places)
        if not torch.equal(places.sort().values, torch.arange(n)):
            raise BindingError(f"the places of {n} rollouts (`Experience.index`) are not 0 to {n - 1}, each once")
        sizes = [len(e.index) for e in experiences]
        columns: dict[str, Any] = {}
        widths = {place: e.action_mask.shape[1] for e in experiences for place in e.index}
        for name in self.spec.columns:
            if name in self.lists:
                columns[name] = column(self.turns, name, [widths[place] for place in range(n)])
                continue
            rows = self._column(name, experiences, sizes)
            columns[name] = torch.empty_like(rows).index_copy_(0, places, rows)
        before, groups = self.state, [place // group_size for place in range(n)]
        moment: dict[str, Any] = {"step": self.step, "total_steps": self.total_steps, "seed": self.seed}
        turns = {name: [len(of.ranges) for of in self.turns] for name in lists_of_turns(self.spec)}
        try:
            self.result = self.function(columns, group_size, **moment, lengths=turns or None, state=before)
        except self.function.RolloutError as error:
            raise BindingError("\n".join([str(error), *_not_finite(columns)])) from error
        self.state = self.result.state
        moment["lengths"] = turns or None
        self.measured = self.spec_metrics(columns, groups, self.result, self.state, **moment, before=before)
        if self.log is not None and self.step is not None and self.log.wants(self.step):
            log_batch(
                self.log,
                self.spec,
                columns,
                self.result,
                groups,
                step=self.step,
                total_steps=self.total_steps,
                seed=self.seed,
                before=before,
                beside=lambda: self._beside(experiences, sizes, places),
            )
        self._log_reward_spread(experiences, places, sizes, group_size)
        if self.list is not None:
            found, lengths = self.result.advantages.float().cpu(), self.result.lengths[self.list].cpu()
            return token_advantages(self.list, found, lengths, self.turns, experiences, group_size)
        device = experiences[0].action_mask.device
        advantages = self.result.advantages.float().cpu()[places].to(device)
        return list(advantages.split(sizes))

    def _beside(self, experiences: Sequence, sizes: Sequence[int], places: torch.Tensor) -> Beside:
        """For the rollout log: texts, and what was measured beside the spec's columns, rollouts by their place."""
        order = places.argsort()
        names = dict.fromkeys([*FILLED_IN, *(name for experience in experiences for name in experience.info)])
        more = {}
        for name in names:
            parts = [values(name, experience) for experience in experiences]
            if name not in self.spec.columns and [0 if p is None else p.numel() for p in parts] == list(sizes):
                found = torch.cat([part.reshape(-1).cpu() for part in parts if part is not None])
                more[name] = Column("number", found.double()[order].numpy())
        tokenizer, kept = self.tokenizer, columns_of(self.kept)
        if tokenizer is None:
            return Beside({}, more, kept)
        prompts = [prompt for experience in experiences for prompt in experience.prompts]
        answers = [tokens for experience in experiences for tokens in answered(experience)]

        def completions() -> list[str]:
            decoded = tokenizer.batch_decode([row.tolist() for row in answers], skip_special_tokens=True)
            return [decoded[row] for row in order.tolist()]

        return Beside({"prompt": [prompts[row] for row in order.tolist()], "completion": completions}, more, kept)

    def metrics(self) -> dict[str, float]:
        """The metrics of the last batch."""
        return self.measured

    def _column(self, name: str, experiences: Sequence, sizes: Sequence[int]) -> torch.Tensor:
        """The values of a name, [N], in the order of the experiences."""
        parts = [values(name, experience) for experience in experiences]
        counts = [0 if part is None else part.numel() for part in parts]
        if counts != list(sizes):
            raise BindingError(f"`{name}` has {sum(counts)} values for {sum(sizes)} rollouts. {SWALLOWED}")
        return torch.cat([part.reshape(-1).cpu() for part in parts if part is not None])

    def _log_reward_spread(self, experiences, places, sizes, group_size: int) -> None:
        """OpenRLHF's own `group_reward_std`, of the reward that it knows."""
        if group_size > 1:
            rewards = torch.cat([e.rewards for e in experiences])
            rewards = torch.empty_like(rewards).index_copy_(0, places.to(rewards.device), rewards)
            spread = rewards.reshape(-1, group_size).std(-1).repeat_interleave(group_size)[places]
            for experience, part in zip(experiences, spread.split(list(sizes)), strict=True):
                experience.info["group_reward_std"] = part


def unlike_groups(samples: Sequence, group_size: int) -> list[str]:
    """A line if prompts have a wrong number of rollouts. A prompt can be drawn twice in a row."""
    prompts = (prompt for sample in samples for prompt in sample.prompts)
    sizes = [len(list(rollouts)) for _, rollouts in itertools.groupby(prompts)]
    unlike = [i for i, size in enumerate(sizes) if size % group_size]
    if not unlike:
        return []
    return [
        f"{len(unlike)} of {len(sizes)} prompts do not have {group_size} rollouts (--rollout.n_samples_per_prompt); "
        f"the first is prompt {unlike[0]}, with {sizes[unlike[0]]}: an agent must return each rollout, with its "
        "`prompt` unchanged; a filter must drop all rollouts of a prompt, or none"
    ]


def _hidden_reward(samples: Sequence) -> bool:
    """Whether `extra_logs` have a `reward` that differs from `rewards`."""
    known = [sample for sample in samples if sample.rewards is not None and "reward" in sample.info]
    return not all(
        torch.allclose(sample.info["reward"].float(), sample.rewards.float(), rtol=0, atol=0, equal_nan=True)
        for sample in known
    )


def values(name: str, experience) -> torch.Tensor | None:
    """The values of a name in one experience: as scored, else from the trainer."""
    if name == "reward":
        return experience.rewards
    if name in experience.info:
        found = experience.info[name]
        return found if isinstance(found, torch.Tensor) else torch.tensor(found)
    if name == "tokens":
        return experience.action_mask.sum(-1)
    return experience.truncated if name == "truncated" else None


def answered(experience) -> list[torch.Tensor]:
    """The tokens of each rollout from the model's first to its last, with answers of an environment between them.

    A mask begins at token 1.
    """
    found = []
    for tokens, mask in zip(experience.sequences.cpu(), experience.action_mask.cpu(), strict=True):
        own = mask.nonzero().flatten().tolist()
        found.append(tokens[own[0] + 1 : own[-1] + 2] if own else tokens[:0])
    return found


def _not_finite(columns: dict[str, Any]) -> list[str]:
    """A line for each column with NaN or infinite values."""
    tensors = {name: values for name, values in columns.items() if isinstance(values, torch.Tensor)}  # no lists
    counts = {name: int((~torch.isfinite(values.float())).sum()) for name, values in tensors.items()}
    return [
        f"`{name}` is NaN or infinite in {count} of {len(columns[name])} rollouts: extra_logs must be finite numbers, "
        "or NaN for a value that was not measured (with `missing: ignore` or `missing: zero` in the spec)"
        for name, count in counts.items()
        if count
    ]
