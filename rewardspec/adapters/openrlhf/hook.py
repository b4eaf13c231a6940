"""The hooks in OpenRLHF's modules, in the training process and in the workers of its Ray job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from types import ModuleType

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.hooks import patch_modules, wrap_once
from rewardspec.adapters.common.lists import listed_columns
from rewardspec.adapters.common.record import compare, record
from rewardspec.adapters.common.state import restored
from rewardspec.adapters.openrlhf.checks import WAS_TESTED, check_settings, setting, total_steps
from rewardspec.adapters.openrlhf.kept import KEPT, Kept
from rewardspec.adapters.openrlhf.settings import Settings
from rewardspec.spec import Spec

logger = logging.getLogger(__name__)

_settings: Settings | None = None  # of `install`, which puts the hooks in
_read: tuple[Settings, Spec] | None = None  # the spec of these settings
TURNS = "rewardspec_turns"  # the attribute of an Experience of one rollout


def _current() -> Settings:
    assert _settings is not None  # no hook is there before
    return _settings


def _spec() -> Spec:
    """The spec of the run, read once."""
    global _read
    if _read is None or _read[0] is not _current():
        _read = (_current(), _current().spec())
    return _read[1]


def _original(owner, name: str):
    found = getattr(owner, name, None)
    if found is None:
        raise BindingError(f"this OpenRLHF has no `{owner.__name__}.{name}`: {WAS_TESTED}")
    return found


def hook(owner, name: str, wrap: Callable) -> None:
    """Replace an attribute by its wrapper, once. Raises BindingError if there is no such attribute."""
    _original(owner, name)
    wrap_once(owner, name, wrap)


def _in_experience_maker(module: ModuleType) -> None:
    from rewardspec.adapters.openrlhf.rollouts import Advantages

    maker = _original(module, "RemoteExperienceMaker")
    compute_reward = _original(module, "compute_reward")
    apply_length_penalties = _original(module, "apply_length_penalties")
    _original(maker, "get_cumulative_returns")

    def init(original):
        def wrapper(self, *args, **kwargs):
            original(self, *args, **kwargs)
            self.rewardspec = Advantages(_current().spec(), _current().seed)
            check_settings(self.args, self.rewardspec.spec)
            self.rewardspec.open_log(_current().log, self.tokenizer)

        return wrapper

    def split_rollout_samples(original):
        def wrapper(self, rollout_samples):
            size, rewarded = self.args.rollout.n_samples_per_prompt, bool(setting(self.args, "reward.remote_url"))
            self.rewardspec.check(rollout_samples, size, rewarded)
            self.rewardspec.turns = [getattr(sample, TURNS, None) for sample in rollout_samples]
            self.rewardspec.kept = [getattr(sample, KEPT, None) for sample in rollout_samples]
            return original(self, rollout_samples)

        return wrapper

    def compute_advantages_and_returns(original):
        import torch

        @torch.no_grad()
        def wrapper(self, experiences):
            for experience in experiences:
                dtype = torch.promote_types(experience.rewards.dtype, torch.float32)
                experience.rewards = experience.rewards.to(dtype)
            apply_length_penalties(experiences, self.args)
            advantages = self.rewardspec(experiences, self.args.rollout.n_samples_per_prompt)
            for experience, advantage in zip(experiences, advantages, strict=True):
                of_tokens = advantage if advantage.dim() == 2 else None  # of turns: it is not summed up like a reward
                if of_tokens is not None:
                    advantage = torch.zeros(len(of_tokens), device=of_tokens.device)
                # in float32, whatever the type of the log-probabilities; not clipped, because it is not a reward
                reward = compute_reward(
                    advantage, self.kl_ctl.value, experience.kl.float(), action_mask=experience.action_mask
                )
                experience.returns = self.get_cumulative_returns(reward, experience.action_mask, 1.0)
                experience.info["return"] = reward.sum(dim=-1)
                if of_tokens is not None:
                    experience.returns = (experience.returns + of_tokens) * experience.action_mask
                    written = experience.action_mask.sum(-1).clamp(min=1)
                    experience.info["return"] += of_tokens.sum(-1) / written  # the mean of its tokens
                experience.advantages = experience.returns.clone()
                experience.kl = None
            return experiences

        return wrapper

    hook(maker, "__init__", init)
    hook(maker, "split_rollout_samples", split_rollout_samples)
    hook(maker, "compute_advantages_and_returns", compute_advantages_and_returns)


def _in_agent(module: ModuleType) -> None:
    from rewardspec.adapters.openrlhf.turns import STEPS, recorded, running

    executor = _original(module, "MultiTurnAgentExecutor")

    def init(original):
        def wrapper(self, *args, **kwargs):
            original(self, *args, **kwargs)
            self.agent_instance_cls = recorded(self.agent_instance_cls)

        return wrapper

    def execute(original):
        async def wrapper(self, *args, **kwargs):
            steps: list = []
            token = running.set(steps)
            try:
                return await original(self, *args, **kwargs) | {STEPS: steps}
            finally:
                running.reset(token)

        return wrapper

    if _spec().lists:
        hook(executor, "__init__", init)
        hook(executor, "execute", execute)


def _in_samples_generator(module: ModuleType) -> None:
    def process(original):
        def wrapper(self, response, *args, **kwargs):
            if not _spec().lists:
                return original(self, response, *args, **kwargs)
            from rewardspec.adapters.openrlhf.turns import separated

            response, turns = separated(response, list(listed_columns(_spec())))
            made = original(self, response, *args, **kwargs)
            setattr(made, TURNS, turns)
            return made

        return wrapper

    def generate_samples(original):
        def wrapper(self, *args, **kwargs):
            found = original(self, *args, **kwargs)
            if found[0]:  # the training side of the asynchronous trainer does not have the data set
                found[0][0].rewardspec_prompts = len(self.prompts_dataloader)
            if (kept := _kept_by(self)) is not None:
                for sample in found[0]:
                    setattr(sample, KEPT, kept.of(sample.prompts[0], sample.labels[0]))
            return found

        return wrapper

    def generate_vllm(original):
        def wrapper(self, dataloader_iter, num_prompts, dynamic_filtering, **options):
            def draw(prompts):
                return original(self, dataloader_iter, prompts, dynamic_filtering=False, **options)

            if not dynamic_filtering:
                return draw(num_prompts)
            from rewardspec.adapters.openrlhf.filter import Filter

            if not hasattr(self, "rewardspec_filter"):
                self.rewardspec_filter = Filter(_current().spec(), _current().seed)
            size = options.get("n_samples_per_prompt", self.args.rollout.n_samples_per_prompt)
            total = total_steps(self.args, len(self.prompts_dataloader))
            return self.rewardspec_filter(draw, num_prompts, size, getattr(self, "rewardspec_step", 0), total)

        return wrapper

    def init(original):
        def wrapper(self, *args, **kwargs):
            original(self, *args, **kwargs)
            if kept := _kept_by(self):
                kept.check()

        return wrapper

    generator = _original(module, "SamplesGenerator")
    hook(generator, "__init__", init)
    hook(generator, "generate_samples", generate_samples)
    hook(generator, "_generate_vllm", generate_vllm)
    hook(generator, "_process_response_into_experience", process)


def _kept_by(generator) -> Kept | None:
    """What the data set of a generator's training prompts keeps for the rollout log."""
    return getattr(getattr(generator.prompts_dataloader, "dataset", None), KEPT, None)


def _in_datasets(module: ModuleType) -> None:
    def init(original):
        def wrapper(self, dataset, *args, **kwargs):
            original(self, dataset, *args, **kwargs)
            log = _current().log
            if log is not None and log.columns:
                setattr(self, KEPT, Kept(dataset, self.prompts, self.labels, log))

        return wrapper

    hook(_original(module, "PromptDataset"), "__init__", init)


def _in_trainer(module: ModuleType) -> None:
    trainer = _original(module, "BasePPOTrainer")
    for name in ("train_step", "init_checkpoint_states", "save_logs_and_checkpoints", "save_best_checkpoint"):
        _original(trainer, name)

    def init(original):
        def wrapper(self, *args, **kwargs):
            original(self, *args, **kwargs)
            # Ray copies inherited methods when the actor class is declared: a patch of the base class comes too late
            self.train_step = _with_moment(self, self.train_step)
            self.init_checkpoint_states = _compared(self, self.init_checkpoint_states)
            self.save_logs_and_checkpoints = _marked(self, self.save_logs_and_checkpoints)
            self.save_best_checkpoint = _marked(self, self.save_best_checkpoint)

        return wrapper

    hook(trainer, "__init__", init)


def _compared(trainer, original: Callable) -> Callable:
    """`init_checkpoint_states` that refuses a checkpoint of another spec, once, and takes the state of its own."""

    @wraps(original)
    def init_checkpoint_states():
        states = original()
        trainer.rewardspec_compared = True
        if generator := getattr(trainer, "samples_generator", None):
            generator.rewardspec_step = states["global_step"]
        advantages, found = trainer.experience_maker.rewardspec, states.get("rewardspec")
        if states["global_step"]:
            where, changed = f"the checkpoint in {setting(trainer.args, 'ckpt.path')}", _current().resume_changed
            told = None if changed else compare(found, advantages.spec, where, "--resume-changed")
            if told:
                logger.warning("rewardspec: %s", told)
            advantages.state = restored(found, advantages.function, where, anyway=changed)
        return states

    return init_checkpoint_states


def _marked(trainer, original: Callable) -> Callable:
    """A method that saves checkpoints, with the record of the spec added to their states."""

    @wraps(original)
    def save(first, second=None, client_states=None):
        advantages = trainer.experience_maker.rewardspec
        if advantages.log is not None:  # written while the step was trained on; a file is complete after its step
            advantages.log.flush()
        marked = dict(client_states or {}) | {"rewardspec": record(advantages.spec, advantages.seed, advantages.state)}
        return original(first, second, marked)

    return save


def _with_moment(trainer, original: Callable) -> Callable:
    """`train_step` that passes the moment of training to the experience maker, and logs the spec's metrics."""

    @wraps(original)
    def train_step(rollout_samples, global_step):
        if global_step and not getattr(trainer, "rewardspec_compared", False):
            trainer.init_checkpoint_states()  # in the asynchronous trainer this is called from outside, by Ray
        advantages = trainer.experience_maker.rewardspec
        prompts = getattr(rollout_samples[0], "rewardspec_prompts", None)
        advantages.step = global_step
        advantages.total_steps = None if prompts is None else total_steps(trainer.args, prompts)
        status, global_step = original(rollout_samples, global_step)
        if generator := getattr(trainer, "samples_generator", None):
            generator.rewardspec_step = global_step
        status.update(advantages.metrics())
        return status, global_step

    return train_step


PATCHES = {
    "openrlhf.utils.agent": _in_agent,
    "openrlhf.trainer.ppo_utils.experience_maker": _in_experience_maker,
    "openrlhf.trainer.ppo_utils.samples_generator": _in_samples_generator,
    "openrlhf.datasets.prompts_dataset": _in_datasets,
    "openrlhf.trainer.ppo_trainer": _in_trainer,
}


def install(settings: Settings) -> None:
    """Install the hooks in this process: in imported modules at once, in others when they are imported."""
    global _settings
    _settings = settings
    patch_modules(PATCHES)


def setup_hook(settings: Settings) -> Callable[[], None]:
    """The `worker_process_setup_hook` for `ray.init(runtime_env={...})`: it calls `install` in every worker."""

    def rewardspec_setup():
        from rewardspec.adapters.openrlhf.hook import install

        install(settings)

    return rewardspec_setup
