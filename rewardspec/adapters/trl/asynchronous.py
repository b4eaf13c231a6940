"""A spec's advantages inside TRL's asynchronous GRPO trainer. Tested with TRL 1.16.0.

    from rewardspec.adapters.trl_async import RewardSpecAsyncGRPOTrainer

    trainer = RewardSpecAsyncGRPOTrainer("Qwen/Qwen3-4B", reward_funcs=[correct], spec="spec.yaml", train_dataset=...)

That trainer scores one group at a time, in a separate process, the rollout worker. So the spec may read neither the
batch nor the step, and its advantage is that of a rollout, not of a list's items; others are refused before the model
is loaded. Columns are found as in `rewardspec.adapters.trl`, on the worker: a column that nothing measures ends the run
at the first group. `reward`, `reward_std`, `rewards/` and `rewardspec/` are logged as there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from os import PathLike

from rewardspec.adapters.common.binding import BindingError, as_name, check_rewards, read_spec
from rewardspec.adapters.common.by_group import beyond_a_group
from rewardspec.adapters.common.lists import list_of_advantage, listed_columns, lists_of_turns, with_missing
from rewardspec.adapters.common.metrics import Metrics
from rewardspec.adapters.common.rewards import AUTOMATIC
from rewardspec.adapters.common.rollout_log import PREFIX, Log
from rewardspec.adapters.trl.adapter import own_functions
from rewardspec.adapters.trl.checks import no_reward
from rewardspec.adapters.trl.turns import mean_of, plain
from rewardspec.scoring.permission import Allowed
from rewardspec.spec import Spec, compile

try:
    from trl.experimental.async_grpo import AsyncGRPOTrainer
    from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop
    from trl.trainer.utils import is_async_callable
except ImportError as error:
    raise ImportError("rewardspec.adapters.trl_async needs TRL; it was tested with trl==1.16.0") from error


class RewardSpecAsyncGRPOTrainer(AsyncGRPOTrainer):
    """TRL's AsyncGRPO trainer with a spec's advantages.

    spec, dialect, constants, allow_python: as for `RewardSpecMixin`.

    Raises SpecError for a spec with errors, BindingError for one that a worker cannot compute group by group.
    """

    def __init__(
        self,
        *args,
        spec: Spec | str | PathLike,
        dialect: str | None = None,
        constants: Mapping[str, object] = {},
        allow_python: Allowed = False,
        rollout_log: Log = None,
        **kwargs,
    ):
        if rollout_log is not None:
            raise BindingError(
                "AsyncGRPO has no rollout log: its worker scores one group at a time, before it is known in which step "
                "the group is trained on; use RewardSpecGRPOTrainer"
            )
        plain = read_spec(spec, constants)
        read = plain if dialect is None else plain.under(dialect)
        check_by_group(read)
        passed = kwargs.get("reward_funcs", args[1] if len(args) > 1 else None)
        passed = passed if isinstance(passed, list) else [] if passed is None else [passed]
        own_functions(read, passed, allow_python)  # those of the worker, checked before it starts
        super().__init__(*args, **kwargs)
        worker = self.rollout_worker
        if worker is None:
            return  # the main process has it
        if not isinstance(worker, AsyncRolloutWorker) or worker._loop_cls is not _AsyncRolloutLoop:
            raise BindingError(f"`{type(worker).__name__}` scores rollouts itself, so it cannot use a spec")
        worker._loop_cls = SpecLoop
        worker._loop_kwargs |= {"spec": plain, "dialect": dialect, "allow_python": allow_python}


def check_by_group(spec: Spec) -> None:
    """Raise BindingError, with a line for each reason, if a spec cannot be computed on a single group."""
    problems = beyond_a_group(spec, "the worker")
    if spec.condition is not None:
        problems.append(f"{spec.name} has reward tokens, and the worker generates a group from one prompt")
    if (of := list_of_advantage(spec)) is not None:
        problems.append(
            f"the advantage of {spec.name} is of the list `{of}`, and the worker has one advantage for each rollout"
        )
    elif turns := lists_of_turns(spec):
        problems.append(
            f"{spec.name} reads no column of the list `{turns[0]}`, and the worker does not count turns: read one that "
            "a reward function of yours returns"
        )
    if problems:
        raise BindingError("\n".join([*problems, "AsyncGRPO scores one group at a time; use RewardSpecGRPOTrainer"]))


class SpecLoop(_AsyncRolloutLoop):
    """TRL's rollout loop, in the worker's process, with the advantages of a spec.

    spec: pickled as its text. dialect: see `Spec.under`.
    """

    def __init__(
        self,
        *,
        spec: Spec,
        dialect: str | None = None,
        allow_python: Allowed = False,
        reward_funcs: list[Callable],
        **kwargs,
    ):
        self.spec = spec if dialect is None else spec.under(dialect)
        self.advantage_function, self._read = compile(self.spec), self.spec.columns
        self._spec_metrics = Metrics(self.spec)
        functions = [*reward_funcs, *own_functions(self.spec, reward_funcs, allow_python)]
        super().__init__(reward_funcs=functions or [no_reward], **kwargs)
        if not functions and self._env_reward_types:  # an environment has brought one
            self.reward_funcs: list[Callable] = []
            self.reward_func_names: list[str] = self.reward_func_names[1:]
        self._measured: list[list] = [[] for _ in self.reward_funcs]
        self.reward_funcs = [self._kept(k, function) for k, function in enumerate(self.reward_funcs)]
        data = getattr(self.dataset, "column_names", None) or self._read
        rewards = [self._name(name) for name in self.reward_func_names if name != no_reward.__name__]
        check_rewards(self.spec, rewards, {*data, *AUTOMATIC}, "reward function")
        self._check_lists({*map(self._name, self.reward_func_names[len(functions) :])}, rewards)

    def _check_lists(self, environments: set[str], rewards: list[str]) -> None:
        """Raise BindingError for columns of lists that the worker measures once for each rollout."""
        data = getattr(self.dataset, "column_names", None) or ()
        problems = [
            f"`{name}` is one value for each rollout here: declare it without `level: {of}`, or pass a reward function "
            "of that name that returns a list for each rollout"
            for name, of in listed_columns(self.spec).items()
            if name in environments or (name in AUTOMATIC and name not in rewards and name not in data)
        ]
        if problems:
            raise BindingError("\n".join(problems))

    def _name(self, name: str) -> str:
        return name if name in self.spec.columns else as_name(name)

    def _kept(self, k: int, function: Callable) -> Callable:
        """The function, with its values stored for the current group: groups are scored one after the other.

        TRL gets the mean of each list.
        """

        def kept(values):
            self._measured[k] = [plain(value) for value in values]
            return [mean_of(value) for value in self._measured[k]]

        @functools.wraps(function)
        def scored(**kwargs):
            return kept(function(**kwargs))

        @functools.wraps(function)
        async def awaited(**kwargs):
            return kept(await function(**kwargs))

        return awaited if is_async_callable(function) else scored

    async def _score_group(self, group):
        samples = await super()._score_group(group)
        columns = self._columns(group)
        result = self.advantage_function(columns, len(group.completions))
        advantages = result.advantages.tolist()
        node = self.spec.program.total  # of a list level there is none for each rollout
        totals = advantages if result.total is None or (node and node.level.listed) else result.total.tolist()
        found = self._spec_metrics(columns, [0] * len(advantages), result, None)
        found["reward_std"] = found.get(f"{PREFIX}total_std", float("nan"))
        rows = iter(samples)  # those of a conversation stand together
        for sequences, advantage, total in zip(group.completions_sequences, advantages, totals, strict=True):
            for _ in sequences:
                sample = next(rows)
                sample.advantage = advantage
                sample.metrics.update(found, reward=total)
                sample.metrics.pop(f"rewards/{no_reward.__name__}", None)
        return samples

    def _columns(self, group) -> dict:
        """The spec's columns, of one group."""
        measured = [*self._measured]
        for kind in self._env_reward_types:  # as TRL has them: a rollout is scored by its own environment
            measured.append([r[1] if r is not None and r[0] is kind else None for r in group.env_rewards])
        found = dict(zip(map(self._name, self.reward_func_names), measured, strict=True))
        for name in self._read:
            if name in found:
                continue
            if name in group.reward_kwargs:
                found[name] = group.reward_kwargs[name]
            elif name == "tokens":  # those that the model wrote; a conversation that was forked has several rows
                found[name] = (
                    [sum(sum(s.completion_mask) for s in sequences) for sequences in group.completions_sequences]
                    if self.tools
                    else [len(ids) for ids in group.completions_ids]
                )
            elif name == "truncated":
                found[name] = [int(not ids or ids[-1] not in self.eos_token_ids) for ids in group.completions_ids]
            else:
                known = ", ".join(f"`{key}`" for key in group.reward_kwargs)
                raise BindingError(f"nothing measures `{name}`, which {self.spec.name} reads; the rows have {known}")
        return with_missing({name: found[name] for name in self._read}, listed_columns(self.spec), lambda _: None)
