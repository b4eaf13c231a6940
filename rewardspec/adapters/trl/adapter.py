"""TRL's GRPO and RLOO trainers with the advantages of a spec, and the mixin that both use."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from copy import copy
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from rewardspec.adapters.common import record
from rewardspec.adapters.common.binding import BindingError, read_spec
from rewardspec.adapters.common.lists import list_of_advantage, listed_columns, lists_of_turns, with_missing
from rewardspec.adapters.common.metrics import Metrics
from rewardspec.adapters.common.rollout_log import Log, as_log
from rewardspec.adapters.common.state import restored
from rewardspec.adapters.common.stretches import check_stretches, counted
from rewardspec.adapters.trl.checks import (
    AUTOMATIC,
    all_weights,
    check_columns,
    check_settings,
    check_trainer,
    no_reward,
    reward_names,
)
from rewardspec.adapters.trl.logs import log_result
from rewardspec.adapters.trl.rewards import for_trl
from rewardspec.adapters.trl.rollout_log import begin_log, log_rollouts
from rewardspec.adapters.trl.rows import moved
from rewardspec.adapters.trl.turns import (
    advantages_of_tokens,
    keep_lists,
    means,
    plain,
    stretch_of,
    tokens_by_stretch,
    turns_of,
)
from rewardspec.function import State
from rewardspec.logs.rollout_log import LogWriter, RolloutLog
from rewardspec.scoring.permission import Allowed
from rewardspec.spec import Spec, compile
from rewardspec.text.shown import printed

try:
    from accelerate.utils import gather_object
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
    from trl import GRPOTrainer, RLOOTrainer
except ImportError as error:
    raise ImportError("rewardspec.adapters.trl needs TRL; it was tested with trl==1.16.0") from error

TESTED = ("1.16.0",)
STATE: tuple[str, ...] = (
    "_logs",
    "_metrics",
    "num_generations",
    "num_generations_eval",
    "reward_func_names",
    "reward_weights",
    "log_completions",
    "eos_token_ids",
)
# The positional arguments of TRL's trainers, up to those about reward functions.
POSITIONS: tuple[str, ...] = ("model", "reward_funcs", "args", "train_dataset", "eval_dataset", "processing_class")
POSITIONS += ("reward_processing_classes",)

logger = logging.getLogger(__name__)

if version("trl") not in TESTED:
    logger.warning(f"rewardspec.adapters.trl was tested with TRL {', '.join(TESTED)}, and this is {version('trl')}")


_Trainer: Any = object  # the base class after the mixin: a trainer of TRL


class RewardSpecMixin(_Trainer):
    """The advantages of a spec in your own trainer: `class Mine(RewardSpecMixin, MyGRPOTrainer)`.

    spec: a `Spec`, the path of a file, or a text. constants: for names of its `define:`. dialect: None for the spec's
    own numerics, `trl` for those of the trainer's built-in schemes.
    move_rows: replace the rows of dropped groups by copies of the groups that `refill` draws. Otherwise rows stay, and
    advantages are weighted instead.
    allow_python: the user functions (`python:`) that may be imported if `reward_funcs` has none of their name: True for
    all, or modules.
    rollout_log: the folder of the run's rollout log, or a `RolloutLog` (docs/rollout_log.md); None for none.
    Where items of a list have the advantages, they go onto the tokens of each item: `out["advantages"]` is [B, T].
    The state of a spec with `state:` begins with every run of `train`, and is saved with the trainer's checkpoints. So
    is the spec's fingerprint: a run that resumes under another spec logs a warning.
    All random draws, also of reward tokens, depend only on `args.seed` and the step.
    Raises SpecError for a spec with errors, BindingError for one that contradicts the trainer.
    """

    def __init__(
        self,
        *args,
        spec: Spec | str | PathLike,
        dialect: str | None = None,
        constants: Mapping[str, object] = {},
        move_rows: bool = False,
        allow_python: Allowed = False,
        rollout_log: Log = None,
        **kwargs,
    ):
        read, log = read_spec(spec, constants, dialect), as_log(rollout_log)
        args, kwargs = with_functions(read, args, kwargs, allow_python)
        super().__init__(*args, **kwargs)
        bind(self, read, move_rows, log)

    _measured: tuple[Any, list[dict], list[list[int]]] | None
    _generations: tuple[int, int]
    _spec_metrics: Metrics
    _held: dict[str, list]  # of this process, lists that reward functions returned for the current batch
    rollout_log: RolloutLog | None
    log_writer: LogWriter | None  # of the main process
    spec_state: State | None  # of a spec with `state:`, after the last batch

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        check_trainer(cls, RewardSpecMixin, (GRPOTrainer, RLOOTrainer), _tested())

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._measured = rewards, inputs, completion_ids_list
        return rewards

    def _generate_and_score_completions(self, inputs):
        mode = "train" if self.model.training else "eval"
        group_size = self.num_generations if mode == "train" else self.num_generations_eval
        step, total_steps, seed = *self._moment(), self._seed(mode)
        place = slice(self.accelerator.process_index * len(inputs), (self.accelerator.process_index + 1) * len(inputs))
        n = len(inputs) * self.accelerator.num_processes
        tokens = None
        if self.spec.condition is not None:
            tokens = self._tokens(n, group_size, mode, seed, step)
            inputs = [self._with_token(row, token) for row, token in zip(inputs, tokens[place], strict=True)]

        self._measured, logged = None, len(self._metrics[mode]["reward"])
        self._held.clear()
        out = super()._generate_and_score_completions(inputs)
        scored: Any = self._measured
        columns = self._columns(out, n)
        moment: dict[str, Any] = {"step": step, "total_steps": total_steps, "seed": seed}
        written: Any = None  # how many stretches each rollout has, [N], where items have the advantages
        if self._list is not None:
            written = self.accelerator.gather(counted(stretch_of(out)))
        columns = with_missing(columns, self._lists, lambda of: written if of == self._list else None)
        if turns := lists_of_turns(self.spec):
            moment["lengths"] = dict.fromkeys(turns, self.accelerator.gather(turns_of(out)))
        before = self.spec_state
        result = self.advantage_function(columns, group_size, **moment, state=before)
        if mode == "train":
            self.spec_state = result.state  # equal on every process: each has the rollouts of all
        own = out["advantages"]
        advantages = result.advantages.to(own.device, torch.float32)
        lengths = None if self._list is None else result.lengths[self._list].to(own.device)
        if lengths is not None:
            hidden = written == 0 if self.args.mask_truncated_completions else None
            check_stretches(self._list, lengths, written, hidden)
        penalty = None
        if self._penalised:  # with weights of 0, TRL's own advantages are those of its KL penalty only
            penalty = self.accelerator.gather(own)
            if self.spec.program.keep is not None:
                penalty = penalty * result.kept.to(own.device).repeat_interleave(group_size)
            advantages = advantages + penalty
        shown = advantages if lengths is None else means(advantages, lengths)
        groups = [row // group_size for row in range(n)]
        found = self._spec_metrics(columns, groups, result, self.spec_state, **moment, before=before)
        log_result(self, mode, logged, found, result, shown, penalty, tokens)
        if mode == "train" and self.rollout_log is not None:
            now = {"step": step, "total_steps": total_steps, "seed": seed, "before": before}
            log_rollouts(self, columns, result, group_size, now, inputs, self._lengths(scored[2], out), penalty, tokens)
        if self.move_rows and mode == "train":
            rows, advantages = (found.to(own.device) for found in result.refilled)
            out = moved(out, rows, self.accelerator, self._tokenizer.pad_token_id)
            advantages, lengths = advantages.float(), None if lengths is None else lengths[rows]
        if lengths is None:
            out["advantages"] = advantages[place]
        else:
            out["advantages"] = advantages_of_tokens(advantages, lengths, out, place)
        return out

    def _save_checkpoint(self, model, trial):
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            record.write(folder, self.spec, self.args.seed, self.spec_state)
        return super()._save_checkpoint(model, trial)

    def _inner_training_loop(self, *args, **kwargs):
        checkpoint = kwargs.get("resume_from_checkpoint")
        self.spec_state = self.advantage_function.initial_state()
        if checkpoint is not None:
            found, where = record.read(checkpoint), f"the checkpoint {checkpoint}"
            if other := record.other_spec(found, self.spec, where):
                logger.warning(printed(other))
            self.spec_state = restored(found, self.advantage_function, where)
        if self.log_writer is None:
            return super()._inner_training_loop(*args, **kwargs)
        self.log_writer.begin()
        try:
            return super()._inner_training_loop(*args, **kwargs)
        finally:
            self.log_writer.flush()

    def _moment(self) -> tuple[int, int | None]:
        """The step and the number of steps; the latter None before training if `max_steps` is not set."""
        total_steps = self.state.max_steps if self.state.max_steps > 0 else self.args.max_steps
        return self.state.global_step, total_steps if total_steps > 0 else None

    def _seed(self, mode: str) -> int:
        """The seed of this generation: `args.seed` for the first of a step.

        If `steps_per_generation` is below `gradient_accumulation_steps`, a step has several generations, each with its
        own seed. A run resumes at the start of a step.
        """
        if mode == "eval":
            return self.args.seed
        step, count = self._generations
        count = count + 1 if step == self.state.global_step else 0
        self._generations = self.state.global_step, count
        return self.args.seed + (count << 32)

    def _tokens(self, n: int, group_size: int, mode: str, seed: int, step: int) -> list[str]:
        """The name of a reward token for each of the `n` rollouts, equal on every process."""
        condition = self.spec.condition
        if mode == "eval":
            return [condition.best] * n
        return condition.draw([i // group_size for i in range(n)], seed, step)

    def _with_token(self, row: dict, token: str) -> dict:
        # An environment may own the data; TRL then starts from this prompt.
        prompt = row.get("prompt", [{"role": "user", "content": ""}])
        return {**row, "prompt": self.spec.condition.render(prompt, token)}

    def _columns(self, out: dict, n: int) -> dict:
        """The spec's columns, of the rollouts of all processes."""
        if self._measured is None:
            raise BindingError(
                f"{type(self).__name__} scored a batch without calling `_calculate_rewards`: there are no rewards"
            )
        rewards, inputs, completion_ids = self._measured
        self._measured = None
        if len(rewards) != n or len(out["advantages"]) * self.accelerator.num_processes != n:
            raise BindingError(
                f"{n} rollouts went in, {len(rewards)} were scored and {len(out['advantages'])} of this process came "
                f"back: {type(self).__name__} changes the batch, so rewards cannot be matched"
            )
        measured = reward_names(self, self._read)
        columns = {name: rewards[:, k] for k, name in enumerate(measured) if name in self._read}
        columns = {name: values for name, values in columns.items() if name not in self._lists}
        others = [name for name in self._read if name not in columns]
        local = [self._column(name, inputs, completion_ids, out) for name in others]
        if others and self.accelerator.num_processes > 1:
            rows = gather_object(list(zip(*local, strict=True)))
            local = [list(values) for values in zip(*rows, strict=True)]
        columns |= zip(others, local, strict=True)
        return {
            name: torch.tensor(columns[name]) if name in others and self._counted(name, inputs) else columns[name]
            for name in self._read
        }

    def _counted(self, name: str, inputs: list[dict]) -> bool:
        """Whether the trainer measures a column itself, with an integer for every rollout."""
        return name in AUTOMATIC and name not in inputs[0] and name not in self._lists

    def _column(self, name: str, inputs: list[dict], completion_ids: list[list[int]], out: dict) -> list:
        """A column that is not a reward, of this process's rollouts, as plain values."""
        if name in self._held:
            return self._held[name]
        if name in inputs[0]:
            return [plain(row.get(name)) for row in inputs]
        if name == "tokens" and name in self._lists:
            return tokens_by_stretch(completion_ids, out)
        if name in AUTOMATIC:
            return self._lengths(completion_ids, out)[name]
        found = ", ".join(f"`{key}`" for key in inputs[0])
        raise BindingError(f"nothing measures `{name}`, which {self.spec.name} reads; the rows have {found}")

    def _lengths(self, completion_ids: list[list[int]], out: dict) -> dict[str, list[int]]:
        """`tokens` and `truncated` of this process's rollouts."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        truncated = [int(not ids or ids[-1] not in ends) for ids in completion_ids]
        tokens = [len(ids) for ids in completion_ids]
        if "tool_mask" in out:  # 1 for what the model wrote, and for padding
            tokens = [int(mask[:n].sum()) for n, mask in zip(tokens, out["tool_mask"], strict=True)]
        return {"tokens": tokens, "truncated": truncated}


def with_functions(spec: Spec, args: tuple, kwargs: dict, allow_python: Allowed = False) -> tuple[tuple, dict]:
    """A trainer's arguments with the spec's reward functions added after those passed.

    `reward_weights` and `reward_processing_classes` are extended to the same length.
    """
    given = {**dict(zip(POSITIONS, args, strict=False)), **kwargs}
    passed, tokenizers = given.get("reward_funcs"), given.get("reward_processing_classes")
    functions: list[Any] = [] if passed is None else list(passed) if isinstance(passed, list | tuple) else [passed]
    count = len(functions)
    functions += own_functions(spec, functions, allow_python)
    functions = functions or [no_reward]
    changed: dict[str, Any] = {"reward_funcs": functions}
    if tokenizers is not None:
        tokenizers = list(tokenizers) if isinstance(tokenizers, list | tuple) else [tokenizers]
        changed["reward_processing_classes"] = tokenizers + [None] * (len(functions) - count)
    weights = getattr(given.get("args"), "reward_weights", None)
    if weights is not None and len(weights) != len(functions):
        changed["args"] = copy(given["args"])  # do not change the user's object
        changed["args"].reward_weights = all_weights(spec, weights, count, len(functions))
    places = {name: place for place, name in enumerate(POSITIONS[: len(args)])}
    args = (
        tuple(changed.get(name, value) for name, value in zip(POSITIONS, args, strict=False)) + args[len(POSITIONS) :]
    )
    return args, {**kwargs, **{name: value for name, value in changed.items() if name not in places}}


def own_functions(spec: Spec, passed: list, allow_python: Allowed = False) -> list[Callable]:
    """The reward functions of the spec, except those of columns for which a function of that name is passed."""
    names = {str(getattr(function, "__name__", "")): function for function in passed}
    left = [name for name in spec.uses if name not in names]
    plain = {n: f for n, f in names.items() if n in spec.uses and callable(f) and not inspect.iscoroutinefunction(f)}
    return for_trl(spec, allow_python=allow_python, functions=plain, only=left) if left else []


def _tested() -> str:
    """A remark on an untested version of TRL; empty for a tested one."""
    if version("trl") in TESTED:
        return ""
    return f"; this adapter was tested with TRL {', '.join(TESTED)}, and this is {version('trl')}"


def bind(trainer: RewardSpecMixin, spec: Spec, move_rows: bool = False, log: RolloutLog | None = None) -> None:
    """Give an initialised trainer its spec. Raises BindingError if they contradict each other."""
    absent = [name for name in STATE if not hasattr(trainer, name)]
    if absent:
        raise BindingError(f"{type(trainer).__name__} has no {', '.join(f'`{n}`' for n in absent)}{_tested()}")
    drop_no_reward(trainer)
    check_settings(trainer, spec, move_rows)
    check_columns(trainer, spec)
    trainer.spec, trainer.move_rows = spec, move_rows
    trainer.advantage_function = compile(spec)
    trainer.spec_state = trainer.advantage_function.initial_state()
    trainer._read, trainer._lists, trainer._list = spec.columns, listed_columns(spec), list_of_advantage(spec)
    trainer._held = keep_lists(trainer, spec, reward_names(trainer, spec.columns))
    trainer._spec_metrics = Metrics(spec)
    trainer._generations = (-1, 0)  # step, and how many generations there were at it before
    trainer._penalised = trainer._name == "RLOO" and trainer.beta != 0
    if trainer._penalised:
        trainer.reward_weights = torch.zeros_like(trainer.reward_weights)  # the rewards are weighted by the spec
    begin_log(trainer, log)
    logger.info(printed(f"advantages by {spec.name} ({spec.fingerprint}), dialect {spec.dialect or 'its own'}"))


def drop_no_reward(trainer: RewardSpecMixin) -> None:
    """Remove the placeholder among reward functions if an environment has added a real one."""
    names = trainer.reward_func_names
    if no_reward.__name__ in names and len(names) > 1:
        k = names.index(no_reward.__name__)
        for held in (trainer.reward_funcs, names, trainer.reward_processing_classes):
            del held[k]
        trainer.reward_weights = torch.cat([trainer.reward_weights[:k], trainer.reward_weights[k + 1 :]])


class RewardSpecGRPOTrainer(RewardSpecMixin, GRPOTrainer):
    """TRL's GRPO trainer with a spec's advantages. Its arguments are TRL's and those of `RewardSpecMixin`."""


class RewardSpecRLOOTrainer(RewardSpecMixin, RLOOTrainer):
    """TRL's RLOO trainer with a spec's advantages: a REINFORCE loss, clipped by sequence.

    TRL's KL penalty, which is part of the reward in RLOO, is added as in TRL: the advantage of a rollout is the spec's,
    minus `beta` times the difference of its KL and the mean KL of the other rollouts in its group. `RLOOConfig` has
    `beta=0.05`.
    """
