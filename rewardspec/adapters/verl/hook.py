"""The hooks in verl's modules, and the estimator that uses them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.hooks import is_wrapped, patch_modules, wrap_once
from rewardspec.adapters.verl.settings import (
    NAME,
    NOT_SERVED,
    check_run,
    check_workers,
    chosen,
    missing_hooks,
    rollout_log,
    settings,
)

logger = logging.getLogger(__name__)

# The estimator

_serving: ContextVar[Callable | None] = ContextVar("rewardspec_serving", default=None)


@contextmanager
def _served_by(rollouts_of: Callable):
    token = _serving.set(rollouts_of)
    try:
        yield
    finally:
        _serving.reset(token)


def estimator(token_level_rewards, response_mask, config=None, index=None, **_):
    """Advantages and returns, [N, L], in verl's interface. The hooks in the trainers provide the rollouts."""
    serve = _serving.get()
    if serve is None:
        raise BindingError(f"this trainer does not pass on what compute_score returned: {NOT_SERVED}")
    advantages = serve(token_level_rewards, response_mask)
    if advantages.dim() == 1:  # of rollouts, not of their turns
        advantages = advantages.unsqueeze(-1)
    advantages = advantages * response_mask
    return advantages, advantages


# Hooks

OTHER_RUNNERS = {"FullyAsyncTaskRunner": "fully_async_policy", "OneStepTaskRunner": "one_step_off_policy"}


def _hook(owner, name: str, wrap: Callable) -> None:
    """Replace an attribute by its wrapper, once."""
    if hasattr(owner, name):
        wrap_once(owner, name, wrap)
    else:
        _lacks(f"`{owner.__name__}.{name}`")


def _lacks(what: str) -> None:
    """Record that this verl lacks something that the adapter needs: an error only in runs that use the adapter."""
    missing_hooks.append(what)
    logger.warning("rewardspec: this verl has no %s: the adapter is not in force", what)


def _in_config(module: ModuleType) -> None:
    def validate_config(original):
        def wrapper(config, *args, **kwargs):
            check_run(config)
            return original(config, *args, **kwargs)

        return wrapper

    _hook(module, "validate_config", validate_config)
    if "verl.utils" in sys.modules and hasattr(module, "validate_config"):
        setattr(sys.modules["verl.utils"], "validate_config", module.validate_config)  # noqa: B010 - of a module


def _in_core_algos(module: ModuleType) -> None:
    if module.ADV_ESTIMATOR_REGISTRY.get(NAME) is not estimator:
        module.register_adv_est(NAME)(estimator)


def _trainer_init(served_by: str) -> Callable:
    """Read the spec when a trainer is created. served_by: the hooked method, which subclasses must not override."""

    def wrap(original):
        def wrapper(self, *args, **kwargs):
            from rewardspec.adapters.verl.rollouts import Advantages

            config = kwargs["config"] if "config" in kwargs else next(iter(args), None)
            self.rewardspec = Advantages(*settings(config)) if chosen(config) else None
            if self.rewardspec is not None:
                self.rewardspec.open_log(rollout_log(config))
                if not is_wrapped(getattr(type(self), served_by)):
                    raise BindingError(f"{type(self).__name__} overrides `{served_by}`: {NOT_SERVED}")
                check_workers(config)
            return original(self, *args, **kwargs)

        return wrapper

    return wrap


def _in_main(module: ModuleType) -> None:
    """Check runs of other trainers than `main_ppo`'s, which start here and skip verl's own checks."""

    def run_ppo(original):
        def wrapper(config, *args, **kwargs):
            runner = next(iter(args), kwargs.get("task_runner_class"))
            name = getattr(getattr(runner, "__ray_metadata__", None), "class_name", None)
            if chosen(config) and name in OTHER_RUNNERS:
                raise BindingError(f"verl.experimental.{OTHER_RUNNERS[name]} is not supported: {NOT_SERVED}")
            check_run(config)
            return original(config, *args, **kwargs)

        return wrapper

    _hook(module, "run_ppo", run_ppo)


def _in_v1(module: ModuleType) -> None:
    from rewardspec.adapters.verl.rollouts import note_sizes, of_transfer_queue
    from rewardspec.adapters.verl.tokens import draw_for_prompts

    def compute_advantage(original):
        def wrapper(self, batch, metrics):
            advantages = _of(self)
            if advantages is None:
                return original(self, batch, metrics)

            def serve(rewards, mask):
                prompts = self.config.data.train_batch_size // self.parameter_sync_step
                scores = rewards.sum(-1).tolist
                rollouts = of_transfer_queue(self, batch, scores, advantages.wanted, prompts)
                return advantages(rollouts, mask, self.global_steps, self.total_training_steps)

            with _served_by(serve):
                batch = original(self, batch, metrics)
            metrics.update(advantages.metrics())
            return batch

        return wrapper

    def fit(original):
        def wrapper(self, *args, **kwargs):
            return _flushed(self, original, *args, **kwargs)

        return wrapper

    def submit(original):
        def wrapper(self, batch):
            if _of(self) is not None:
                note_sizes(self, batch)
                if self.rewardspec.spec.condition is not None:
                    draw_for_prompts(self, batch)
            return original(self, batch)

        return wrapper

    _hook(module.PPOTrainer, "__init__", _trainer_init("_compute_advantage"))
    _hook_checkpoints(module.PPOTrainer)
    _hook(module.PPOTrainer, "_compute_advantage", compute_advantage)
    _hook(module.PPOTrainer, "fit", fit)
    _hook(module.PPOTrainer, "_submit_batch_to_rollout", submit)


def _in_replay_buffer(module: ModuleType) -> None:
    def filtered(original):
        def wrapper(self, partition_id):
            trainer = getattr(self.refill_fn, "__self__", None)  # the trainer that draws new prompts
            if self.filter_groups_metric is None or partition_id == "val" or _of(trainer) is None:
                return original(self, partition_id)
            if not hasattr(self, "_rewardspec"):
                from rewardspec.adapters.verl.filter import Filter

                self._rewardspec = Filter(trainer)
            return self._rewardspec(self, partition_id)

        return wrapper

    _hook(module.ReplayBuffer, "_dapo_filtered_keys", filtered)


def _flushed(trainer, fit: Callable, *args, **kwargs):
    """The training itself; its rollout log is complete afterwards."""
    try:
        return fit(trainer, *args, **kwargs)
    finally:
        if _of(trainer) is not None and trainer.rewardspec.log is not None:
            trainer.rewardspec.log.flush()


def _of(trainer):
    """The `Advantages` of a trainer; None if verl computes them."""
    return getattr(trainer, "rewardspec", None)


def _hook_checkpoints(trainer) -> None:
    def save(original):
        def wrapper(self, *args, **kwargs):
            if _of(self) is not None:
                from rewardspec.adapters.verl.checkpoints import mark_checkpoint

                mark_checkpoint(self)
            return original(self, *args, **kwargs)

        return wrapper

    def load(original):
        def wrapper(self, *args, **kwargs):
            if _of(self) is not None:
                from rewardspec.adapters.verl.checkpoints import check_checkpoint

                check_checkpoint(self)
            return original(self, *args, **kwargs)

        return wrapper

    _hook(trainer, "_save_checkpoint", save)
    _hook(trainer, "_load_checkpoint", load)


_running: ContextVar = ContextVar("rewardspec_v0_trainer", default=None)
_corrected: ContextVar = ContextVar("rewardspec_v0_mask", default=None)  # the mask before rollout correction


def _in_rollout_correction(module: ModuleType) -> None:
    def correct(original):
        def wrapper(batch, *args, **kwargs):
            if _running.get() is not None:  # V1 keeps the mask in its queue
                _corrected.set(batch.batch["response_mask"].clone())
            return original(batch, *args, **kwargs)

        return wrapper

    _hook(module, "compute_rollout_correction_and_add_to_batch", correct)


def _in_v0(module: ModuleType) -> None:
    from rewardspec.adapters.verl.rollouts import of_data_proto

    def fit(original):
        def wrapper(self, *args, **kwargs):
            token = _running.set(self if _of(self) is not None else None)
            try:
                return _flushed(self, original, *args, **kwargs)
            finally:
                _running.reset(token)

        return wrapper

    def compute_advantage(original):
        def wrapper(data, *args, **kwargs):
            trainer = _running.get()
            if trainer is None:  # V1, another trainer or another estimator
                return original(data, *args, **kwargs)

            def serve(rewards, mask):
                rollouts = of_data_proto(trainer, data, mask, rewards, _corrected.get())
                _corrected.set(None)
                return trainer.rewardspec(rollouts, mask, trainer.global_steps, trainer.total_training_steps)

            with _served_by(serve):
                return original(data, *args, **kwargs)

        return wrapper

    def compute_data_metrics(original):
        def wrapper(*args, **kwargs):
            trainer = _running.get()
            return original(*args, **kwargs) | (trainer.rewardspec.metrics() if trainer is not None else {})

        return wrapper

    _hook(module.RayPPOTrainer, "__init__", _trainer_init("fit"))
    _hook(module.RayPPOTrainer, "fit", fit)
    _hook_checkpoints(module.RayPPOTrainer)
    _hook(module, "compute_advantage", compute_advantage)
    _hook(module, "compute_data_metrics", compute_data_metrics)


def _in_agent_loop(module: ModuleType) -> None:
    from rewardspec.adapters.verl.rollouts import TOKEN
    from rewardspec.adapters.verl.tokens import conditioned, draw_for_rollouts
    from rewardspec.adapters.verl.turns import TURNS

    def conditions(self):
        """The spec and seed of a run with reward tokens, else None; read once."""
        if not hasattr(self, "_rewardspec"):
            found = settings(self.config) if chosen(getattr(self, "config", None)) else None
            self._rewardspec = found if found is not None and found[0].condition is not None else None
        return self._rewardspec

    def generate_sequences(original):
        def wrapper(self, prompts, *args, **kwargs):
            if conditions(self) is not None and not prompts.meta_info.get("validate", False):
                draw_for_rollouts(conditions(self), prompts)
            return original(self, prompts, *args, **kwargs)

        return wrapper

    def run_agent_loop(original):
        async def wrapper(self, sampling_params, trajectory, **kwargs):
            if conditions(self) is not None:
                kwargs = conditioned(conditions(self)[0].condition, kwargs, trajectory["validate"])
            output = await original(self, sampling_params, trajectory, **kwargs)
            if output is not None and chosen(getattr(self, "config", None)):  # V0: fields are those of all rollouts
                output.extra_fields.setdefault(TURNS, None)
                if conditions(self) is not None:  # in V1 what a rollout was run on goes to the trainer anyway
                    output.extra_fields[TOKEN] = kwargs[TOKEN]
            return output

        return wrapper

    _hook(module.AgentLoopManager, "generate_sequences", generate_sequences)
    _hook(module.AgentLoopWorker, "_run_agent_loop", run_agent_loop)


def _in_tool_agent(module: ModuleType) -> None:
    from rewardspec.adapters.verl.turns import TURNS

    def call_tools(original):
        async def wrapper(self, agent_data):
            before = len(agent_data.tool_rewards)
            state = await original(self, agent_data)
            if chosen(getattr(self, "config", None)):
                turn, rewards = agent_data.assistant_turns - 1, len(agent_data.tool_rewards) - before
                agent_data.extra_fields.setdefault(TURNS, []).extend([turn] * rewards)
            return state

        return wrapper

    _hook(module.ToolAgentLoop, "_handle_processing_tools_state", call_tools)


def _in_reward_loop(module: ModuleType) -> None:
    from rewardspec.adapters.common.lists import listed_columns
    from rewardspec.adapters.verl.turns import as_text

    def compute_score(original):
        async def wrapper(self, data):
            found = await original(self, data)
            if chosen(self.config) and "reward_extra_info" in found:
                if not hasattr(self, "_rewardspec_lists"):  # read once
                    self._rewardspec_lists = listed_columns(settings(self.config)[0])
                found = found | {"reward_extra_info": as_text(found["reward_extra_info"], self._rewardspec_lists)}
            return found

        return wrapper

    _hook(module.RewardLoopWorker, "compute_score", compute_score)


def _contained(patch: Callable) -> Callable:
    """A patch whose failure is recorded and does not stop the import: not every run uses the adapter."""

    def wrapper(module):
        try:
            patch(module)
        except Exception as error:
            _lacks(f"compatible `{module.__name__}` ({type(error).__name__}: {error})")

    return wrapper


PATCHES = {
    "verl.experimental.agent_loop.agent_loop": _contained(_in_agent_loop),
    "verl.experimental.agent_loop.tool_agent_loop": _contained(_in_tool_agent),
    "verl.experimental.reward_loop.reward_loop": _contained(_in_reward_loop),
    "verl.trainer.main_ppo": _contained(_in_main),
    "verl.utils.config": _contained(_in_config),
    "verl.trainer.ppo.core_algos": _contained(_in_core_algos),
    "verl.trainer.ppo.ray_trainer": _contained(_in_v0),
    "verl.trainer.ppo.rollout_corr_helper": _contained(_in_rollout_correction),
    "verl.trainer.ppo.v1.replay_buffer": _contained(_in_replay_buffer),
    "verl.trainer.ppo.v1.trainer_base": _contained(_in_v1),
}


def install() -> None:
    """Install the hooks: in imported modules at once, in others when they are imported."""
    patch_modules(PATCHES)
