"""OpenRLHF: a spec's advantages in the stock `openrlhf.cli.train_ppo_ray`, whose arguments follow `--`.

    python -m rewardspec.adapters.openrlhf --spec spec.yaml -- \\
        --algo.advantage.estimator group_norm --reward.remote_url reward.py ...

The spec's columns are what `reward_func` (or an agent's last step) returns under `extra_logs`, by name; else `tokens`
and `truncated`, which are filled in, and what OpenRLHF has itself: `reward`, `score`, `response_clip_ratio`, `kl`.
`extra_logs` hold numbers; NaN is a missing value, and names that the spec does not read are logged and let be.
`tokens` counts the model's own tokens, `truncated` is what the agent executor says, `reward` the reward after
OpenRLHF's length penalties.

`step` counts the training steps before this one, also after resuming; `total_steps` is as many as the prompts are
enough for (under dynamic filtering there are fewer). A KL penalty in the reward (`--algo.kl.init_coef` without
`--algo.kl.use_loss`) is added for each token, as ever. `--reward.clip_range` clips advantages in OpenRLHF: not here.
Groups that are drawn again (`refill`) are weighted; rows stay where they are. Under `--algo.dynamic_filtering_enable`
groups without signal under the spec are filtered, whatever their `scores`; new prompts take their places in rounds.

Checkpoints hold the fingerprint of the spec; `--resume-changed` goes on from one that was trained under another.

The hooks are put in by a `worker_process_setup_hook` in every worker of the Ray job, when OpenRLHF's modules are
imported there. Importing this module imports neither OpenRLHF, Ray nor torch.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from rewardspec.adapters.binding import BindingError, read_spec
from rewardspec.adapters.hooks import patch_modules, wrap_once
from rewardspec.adapters.jobs import job_variables, problems_everywhere
from rewardspec.adapters.openrlhf_checks import (
    TESTED,
    WAS_TESTED,
    check_settings,
    reward_problems,
    setting,
    total_steps,
)
from rewardspec.adapters.record import compare, record
from rewardspec.spec import Spec, loads
from rewardspec.text.shown import printed

logger = logging.getLogger(__name__)

CLI = "openrlhf.cli.train_ppo_ray"

# Settings


@dataclass(frozen=True)
class Settings:
    """What a run asks for, in plain values that can be sent to other machines."""

    text: str
    name: str  # of the file
    constants: Mapping[str, str]
    fingerprint: str  # without the dialect
    dialect: str | None = None
    seed: int = 0
    resume_changed: bool = False

    @classmethod
    def of(
        cls,
        spec: Spec,
        constants: Mapping[str, object] = {},
        dialect: str | None = None,
        seed: int = 0,
        resume_changed: bool = False,
    ):
        """Settings for a spec that was read with `constants`."""
        texts = {name: str(value) for name, value in constants.items()}
        return cls(spec.source.text, spec.source.name, texts, spec.fingerprint, dialect, seed, resume_changed)

    def plain(self) -> Spec:
        """The spec without the dialect. Raises BindingError where it does not mean what it did when it was read."""
        spec = loads(self.text, self.name, constants=self.constants)
        if spec.fingerprint != self.fingerprint:
            raise BindingError(
                f"{self.name} has the fingerprint {spec.fingerprint} here and {self.fingerprint} where training was "
                "started: install the same rewardspec on all machines"
            )
        return spec

    def spec(self) -> Spec:
        return self.plain() if self.dialect is None else self.plain().under(self.dialect)


# Hooks

_settings: Settings | None = None


def _original(owner, name: str):
    found = getattr(owner, name, None)
    if found is None:
        raise BindingError(f"this OpenRLHF has no `{owner.__name__}.{name}`: {WAS_TESTED}")
    return found


def _hook(owner, name: str, wrap: Callable) -> None:
    """Put a wrapper in the place of an attribute, once. Raises BindingError where there is none."""
    _original(owner, name)
    wrap_once(owner, name, wrap)


def _in_experience_maker(module: ModuleType) -> None:
    from rewardspec.adapters.openrlhf_rollouts import Advantages

    maker = _original(module, "RemoteExperienceMaker")
    compute_reward = _original(module, "compute_reward")
    apply_length_penalties = _original(module, "apply_length_penalties")
    _original(maker, "get_cumulative_returns")

    def init(original):
        def wrapper(self, *args, **kwargs):
            original(self, *args, **kwargs)
            self.rewardspec = Advantages(_settings.spec(), _settings.seed)
            check_settings(self.args, self.rewardspec.spec)

        return wrapper

    def split_rollout_samples(original):
        def wrapper(self, rollout_samples):
            size, rewarded = self.args.rollout.n_samples_per_prompt, bool(setting(self.args, "reward.remote_url"))
            self.rewardspec.check(rollout_samples, size, rewarded)
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
                # in float32 whatever the type of the log-probabilities; not clipped: it is no reward any more
                reward = compute_reward(
                    advantage, self.kl_ctl.value, experience.kl.float(), action_mask=experience.action_mask
                )
                experience.returns = self.get_cumulative_returns(reward, experience.action_mask, 1.0)
                experience.advantages = experience.returns.clone()
                experience.info["return"] = reward.sum(dim=-1)
                experience.kl = None
            return experiences

        return wrapper

    _hook(maker, "__init__", init)
    _hook(maker, "split_rollout_samples", split_rollout_samples)
    _hook(maker, "compute_advantages_and_returns", compute_advantages_and_returns)


def _in_samples_generator(module: ModuleType) -> None:
    def generate_samples(original):
        def wrapper(self, *args, **kwargs):
            found = original(self, *args, **kwargs)
            if found[0]:  # in the asynchronous trainer, who trains does not know the data set
                found[0][0].rewardspec_prompts = len(self.prompts_dataloader)
            return found

        return wrapper

    def generate_vllm(original):
        def wrapper(self, dataloader_iter, num_prompts, dynamic_filtering, **options):
            def draw(prompts):
                return original(self, dataloader_iter, prompts, dynamic_filtering=False, **options)

            if not dynamic_filtering:
                return draw(num_prompts)
            from rewardspec.adapters.openrlhf_filter import Filter

            if not hasattr(self, "rewardspec_filter"):
                self.rewardspec_filter = Filter(_settings.spec(), _settings.seed)
            size = options.get("n_samples_per_prompt", self.args.rollout.n_samples_per_prompt)
            total = total_steps(self.args, len(self.prompts_dataloader))
            return self.rewardspec_filter(draw, num_prompts, size, getattr(self, "rewardspec_step", 0), total)

        return wrapper

    generator = _original(module, "SamplesGenerator")
    _hook(generator, "generate_samples", generate_samples)
    _hook(generator, "_generate_vllm", generate_vllm)


def _in_trainer(module: ModuleType) -> None:
    trainer = _original(module, "BasePPOTrainer")
    for name in ("train_step", "init_checkpoint_states", "save_logs_and_checkpoints", "save_best_checkpoint"):
        _original(trainer, name)

    def init(original):
        def wrapper(self, *args, **kwargs):
            original(self, *args, **kwargs)
            # Ray copies what an actor inherits when the class is declared: a method put into the base comes too late
            self.train_step = _with_moment(self, self.train_step)
            self.init_checkpoint_states = _compared(self, self.init_checkpoint_states)
            self.save_logs_and_checkpoints = _marked(self, self.save_logs_and_checkpoints)
            self.save_best_checkpoint = _marked(self, self.save_best_checkpoint)

        return wrapper

    _hook(trainer, "__init__", init)


def _compared(trainer, original: Callable) -> Callable:
    """`init_checkpoint_states` that refuses a checkpoint of another spec, once."""

    @wraps(original)
    def init_checkpoint_states():
        states = original()
        trainer.rewardspec_compared = True
        if generator := getattr(trainer, "samples_generator", None):
            generator.rewardspec_step = states["global_step"]
        spec = trainer.experience_maker.rewardspec.spec
        if states["global_step"] and not _settings.resume_changed:
            where = f"the checkpoint in {setting(trainer.args, 'ckpt.path')}"
            if told := compare(states.get("rewardspec"), spec, where, "--resume-changed"):
                logger.warning("rewardspec: %s", told)
        return states

    return init_checkpoint_states


def _marked(trainer, original: Callable) -> Callable:
    """A method that saves checkpoints, with the spec among the states that go into them."""

    @wraps(original)
    def save(first, second=None, client_states=None):
        advantages = trainer.experience_maker.rewardspec
        marked = dict(client_states or {}) | {"rewardspec": record(advantages.spec, advantages.seed)}
        return original(first, second, marked)

    return save


def _with_moment(trainer, original: Callable) -> Callable:
    """`train_step` that tells the experience maker where training is, and logs what the spec made of the batch."""

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
    "openrlhf.trainer.ppo_utils.experience_maker": _in_experience_maker,
    "openrlhf.trainer.ppo_utils.samples_generator": _in_samples_generator,
    "openrlhf.trainer.ppo_trainer": _in_trainer,
}


def install(settings: Settings) -> None:
    """Install the hooks in this process: at once in modules that are there, in others when they are imported."""
    global _settings
    _settings = settings
    patch_modules(PATCHES)


def setup_hook(settings: Settings) -> Callable[[], None]:
    """What to pass to `ray.init(runtime_env={"worker_process_setup_hook": ...})`: `install` in every worker."""

    def rewardspec_setup():
        from rewardspec.adapters.openrlhf import install

        install(settings)

    return rewardspec_setup


# The launcher


def _install_in_driver(settings: Settings, spec: Spec) -> None:
    """Install the hooks here and, once the stock command line has been read and found right, in Ray's workers."""
    try:
        found = version("openrlhf")
        import ray

        importlib.import_module("openrlhf.trainer.ray")  # first, as in the stock command line
        config = importlib.import_module("openrlhf.utils.config")
        install(settings)
        for name in PATCHES:
            importlib.import_module(name)
    except PackageNotFoundError:
        raise BindingError("OpenRLHF is not installed in this environment") from None
    except ImportError as error:
        raise BindingError(f"OpenRLHF {found} cannot be imported here, or is not the one known: {error}") from error
    if found not in TESTED:
        logger.warning("rewardspec: this is OpenRLHF %s; %s", found, WAS_TESTED)
    checked = []

    def hierarchize(original):
        def wrapper(args):
            args = original(args)
            check_settings(args, spec)
            if problems := reward_problems(*_asked(args, settings)):
                raise BindingError("\n".join(problems))
            checked.append(args)
            print(printed(f"[rewardspec] advantages of {spec.name}, fingerprint {spec.fingerprint}"))
            return args

        return wrapper

    def init(original):
        def wrapper(*args, runtime_env=None, **kwargs):
            if not checked:
                raise BindingError(f"{CLI} of OpenRLHF {found} does not read its arguments as expected: {WAS_TESTED}")
            runtime_env = dict(runtime_env or {}) | {"worker_process_setup_hook": setup_hook(settings)}
            of_job = job_variables()  # OpenRLHF takes their values for its own
            runtime_env["env_vars"] = {k: v for k, v in runtime_env.get("env_vars", {}).items() if k not in of_job}
            started = original(*args, runtime_env=runtime_env, **kwargs)
            if problems := problems_everywhere(reward_problems, *_asked(checked[-1], settings)):
                raise BindingError("\n".join(problems))
            return started

        return wrapper

    _hook(config, "hierarchize", hierarchize)
    _hook(ray, "init", init)


def _asked(args, settings: Settings) -> tuple:
    """What `reward_problems` is asked: plain values, for other machines."""
    files = setting(args, "reward.remote_url"), setting(args, "train.agent_func_path")
    return (*files, settings.text, settings.name, settings.constants)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `train_ppo_ray` with a spec's advantages."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m rewardspec.adapters.openrlhf",
        usage="%(prog)s --spec SPEC [options] -- ARGUMENTS OF train_ppo_ray",
        description=f"Runs {CLI} with the advantages of a spec. Tested with OpenRLHF {', '.join(TESTED)}.",
        epilog=f"`... -- --help` shows the arguments of {CLI}.",
    )
    parser.add_argument("--spec", required=True, help="the spec's file")
    parser.add_argument("--dialect", help="a trainer's numerics, such as openrlhf; the spec's own if left out")
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="a constant")
    parser.add_argument("--seed", type=int, default=0, help="for groups that are drawn again; 0 if left out")
    parser.add_argument(
        "--resume-changed", action="store_true", help="go on from a checkpoint that was trained under another spec"
    )
    given = parser.parse_args(arguments[:at])
    constants = dict(given.set)
    try:
        read = read_spec(given.spec, constants)
        settings = Settings.of(read, constants, given.dialect, given.seed, given.resume_changed)
        spec = settings.spec()
    except (ValueError, OSError) as error:
        sys.exit(printed(f"rewardspec: {error}"))
    try:
        _install_in_driver(settings, spec)
        _run_stock(arguments[at + 1 :])
    except BindingError as error:
        sys.exit(printed(f"rewardspec: {error}"))


def _run_stock(arguments: Sequence[str]) -> None:
    from ray.exceptions import RayTaskError

    sys.argv = [CLI, *arguments]
    try:
        runpy.run_module(CLI, run_name="__main__", alter_sys=True)
    except RayTaskError as error:
        cause = error
        while isinstance(cause, RayTaskError):  # one for each actor that it has come through
            cause = cause.cause
        if not isinstance(cause, BindingError):
            raise
        raise cause from None


if __name__ == "__main__":
    # by its name, not as __main__: what is sent to workers has to be found there
    importlib.import_module("rewardspec.adapters.openrlhf").main()
