"""verl: `algorithm.adv_estimator=rewardspec` in stock `python -m verl.trainer.main_ppo`, V1 and V0.

    VERL_USE_EXTERNAL_MODULES=rewardspec.adapters.verl python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=rewardspec +algorithm.rewardspec.spec=spec.yaml \\
        reward.custom_reward_function.path=reward.py ...

The spec's columns are what `compute_score` returns in its dict, by name; else `tokens`, `truncated` and
`score`, which are filled in; else columns of the data set. `step` is verl's `global_steps`, which is 1 in the
first step. Further keys of `algorithm.rewardspec`: `dialect`, `constants`, `seed`.

V0 hands on `data_source` alone of the data set. Rejection by rollout correction leaves a rollout in its group's
statistics; in V0 its tokens are then fewer. Outputs of one session are one rollout: the last one's values, the
tokens of all. Groups that are drawn again (`refill`) are weighted; rows stay where they are.

Importing this module only notes what to do once verl imports its own modules: verl imports plugins before them,
and its V1 trainer cannot be imported without TransferQueue. Where verl does not know the estimator `rewardspec`,
`python -c "import rewardspec.adapters.verl"` shows why: what fails in a plugin is not shown by verl itself.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from rewardspec.adapters.binding import BindingError, read_spec
from rewardspec.adapters.hooks import is_wrapped, patch_modules, wrap_once
from rewardspec.compiler import Spec, loads
from rewardspec.lint.finding import Run, find

logger = logging.getLogger(__name__)

NAME = "rewardspec"  # of the estimator, and of the section under `algorithm`
TESTED = ("0.9.1",)
NOT_SERVED = (
    "algorithm.adv_estimator=rewardspec is for the trainers of verl.trainer.main_ppo, V1 and V0 "
    f"(tested with verl {', '.join(TESTED)})"
)
KEYS = ("spec", "dialect", "constants", "seed")
MODULES = "VERL_USE_EXTERNAL_MODULES"
_missing: list[str] = []  # hooks that this verl does not have

# Settings


def chosen(config) -> bool:
    """Whether a run asks for a spec's advantages."""
    return str(config.algorithm.adv_estimator) == NAME


def settings(config) -> tuple[Spec, int]:
    """The spec and the seed of a run. Raises BindingError for settings that do not go with each other."""
    section = _plain(config.algorithm.get(NAME, None)) or {}
    problems = [f"this verl has no {hook}: the adapter was tested with {', '.join(TESTED)}" for hook in _missing]
    if not isinstance(section, Mapping):
        raise BindingError(f"algorithm.{NAME} is {section!r}: it holds {', '.join(KEYS)}")
    for key in section:
        if key not in KEYS and key != "file":
            problems.append(f"algorithm.{NAME}.{key} is not known: there are {', '.join(KEYS)}")
    seed = section.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        problems.append(f"algorithm.{NAME}.seed is {seed!r}: it is a whole number")
    if not section.get("spec"):
        problems.append(f"algorithm.{NAME}.spec is not set: +algorithm.{NAME}.spec=PATH (or the text of a spec)")
        raise BindingError("\n".join(problems))
    try:
        spec = _read(section)
    except OSError as error:
        raise BindingError(f"algorithm.{NAME}.spec: {error}") from None
    problems += _contradictions(config, spec)
    if problems:
        raise BindingError("\n".join(problems))
    return spec, seed


def _read(section: Mapping) -> Spec:
    constants, dialect = section.get("constants") or {}, section.get("dialect")
    if "file" not in section:
        return read_spec(section["spec"], constants, dialect)
    spec = loads(section["spec"], section["file"], constants=constants)  # a file that `_travel` read
    return spec if dialect is None else spec.under(dialect)


def _contradictions(config, spec: Spec) -> list[str]:
    """Settings of verl that the spec's advantages would silently ignore, each with a way out."""
    found = []

    def get(path, default=None):
        here = config
        for part in path.split("."):
            here = here.get(part, None) if here is not None else None
        return default if here is None else here

    def refuse(setting, way_out):
        found.append(f"{setting}={get(setting)} has no effect under algorithm.adv_estimator={NAME}: {way_out}")

    if get("algorithm.use_kl_in_reward"):
        refuse("algorithm.use_kl_in_reward", "for a KL penalty take actor_rollout_ref.actor.use_kl_loss=true")
    if not get("algorithm.norm_adv_by_std_in_grpo", True):
        refuse("algorithm.norm_adv_by_std_in_grpo", "leave it out, and say `advantage: dr_grpo` in the spec")
    for name in ("gamma", "lam"):
        if get(f"algorithm.{name}", 1.0) != 1.0:
            refuse(f"algorithm.{name}", "leave it out: a spec gives one advantage to a whole response")
    if get("algorithm.use_pf_ppo"):
        refuse("algorithm.use_pf_ppo", "leave it out: it belongs to adv_estimator=gae")
    if get("algorithm.gdpo_reward_keys"):
        refuse("algorithm.gdpo_reward_keys", "leave it out: the spec names its components")
    if get("algorithm.gdpo_reward_weights"):
        refuse("algorithm.gdpo_reward_weights", "leave it out, and give `weight:` to components of the spec")
    overlong = "reward.reward_kwargs.overlong_buffer_cfg.enable"
    if get(overlong) and "score" not in spec.columns:
        refuse(overlong, "say `overlong(tokens, LIMIT, BUFFER)` in the spec, or read `score` there")
    if get("custom_reward_function.path") and not get("reward.custom_reward_function.path"):
        found.append("custom_reward_function.path is ignored by verl: it is reward.custom_reward_function.path now")
    manager = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    if spec.condition is not None and get(manager):
        found.append(f"{manager}={get(manager)}: reward tokens (`condition:`) need verl's own agent loop manager")
    return found


def _needs_groups(spec: Spec) -> bool:
    """Whether a spec gives nothing to groups of one rollout."""
    return any(found.code == "group-of-one" for found in find(spec, Run(sizes=(1,))))


def _plain(section):
    from omegaconf import OmegaConf

    return OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section


def _travel(config) -> None:
    """Let the run carry the spec and this module to the actors, which may be on other machines, in other folders."""
    from omegaconf import OmegaConf, open_dict

    section = config.algorithm[NAME]
    given = section.spec
    if "\n" not in given:
        text = Path(given).read_text(encoding="utf-8-sig")
        with open_dict(config):
            if "${" in text:  # would be taken for an interpolation
                section.spec = str(Path(given).absolute())
            else:
                section.spec, section.file = text.rstrip("\n") + "\n", str(given)
    if config.get("ray_kwargs", None) is not None:
        where = f"ray_kwargs.ray_init.runtime_env.env_vars.{MODULES}"
        modules = OmegaConf.select(config, where) or os.environ.get(MODULES, "")
        modules = dict.fromkeys(name for name in [*modules.split(","), __name__] if name)
        with open_dict(config):
            OmegaConf.update(config, where, ",".join(modules), force_add=True)


def _check_start(config, spec: Spec) -> None:
    """Raise BindingError for what can be seen where training is started: group size, and the file of the rewards."""
    from omegaconf import OmegaConf

    problems = []
    if OmegaConf.select(config, "actor_rollout_ref.rollout.n") == 1 and _needs_groups(spec):
        problems.append(
            "actor_rollout_ref.rollout.n=1: in groups of one no rollout has an advantage; set "
            "actor_rollout_ref.rollout.n=8, say, or compare with the batch in the spec"
        )
    path = OmegaConf.select(config, "reward.custom_reward_function.path")
    if path and "://" not in path and not Path(path).exists():
        problems.append(f"reward.custom_reward_function.path={path}: there is no such file in {Path.cwd()}")
    if problems:
        raise BindingError("\n".join(problems))


def _check_run(config) -> None:
    """Before anything starts: refuse what cannot work, say what was not tested."""
    if not chosen(config):
        if config.algorithm.get(NAME, None):
            raise BindingError(
                f"algorithm.{NAME} is set, but algorithm.adv_estimator={config.algorithm.adv_estimator} does not "
                f"read it: set algorithm.adv_estimator={NAME}, or leave algorithm.{NAME} out"
            )
        return
    try:
        found = version("verl")
    except PackageNotFoundError:
        found = "of unknown version"
    if found not in TESTED:
        logger.warning("rewardspec: this is verl %s; the adapter was tested with %s", found, ", ".join(TESTED))
    spec, _ = settings(config)
    _check_start(config, spec)
    _travel(config)
    print(f"[rewardspec] advantages of {spec.name}, fingerprint {spec.fingerprint}")


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
    """verl's interface: advantages and returns, [N, L]. Who calls is known from the hooks in the trainers."""
    serve = _serving.get()
    if serve is None:
        raise BindingError(f"this trainer does not pass on what compute_score returned: {NOT_SERVED}")
    advantages = serve(token_level_rewards, response_mask).unsqueeze(-1) * response_mask
    return advantages, advantages


# Hooks


def _hook(owner, name: str, wrap: Callable) -> None:
    """Put a wrapper in the place of an attribute, once."""
    if hasattr(owner, name):
        wrap_once(owner, name, wrap)
    else:
        _missing.append(f"`{owner.__name__}.{name}`")
        logger.error("rewardspec: this verl has no %s: the adapter is not in force", _missing[-1])


def _in_config(module: ModuleType) -> None:
    def validate_config(original):
        def wrapper(config, *args, **kwargs):
            _check_run(config)
            return original(config, *args, **kwargs)

        return wrapper

    _hook(module, "validate_config", validate_config)
    if "verl.utils" in sys.modules and hasattr(module, "validate_config"):
        sys.modules["verl.utils"].validate_config = module.validate_config


def _in_core_algos(module: ModuleType) -> None:
    if module.ADV_ESTIMATOR_REGISTRY.get(NAME) is not estimator:
        module.register_adv_est(NAME)(estimator)


def _trainer_init(served_by: str) -> Callable:
    """Read the spec when a trainer is built. served_by: the method that is hooked, which it has to leave in place."""

    def wrap(original):
        def wrapper(self, *args, **kwargs):
            from rewardspec.adapters.verl_rollouts import Advantages

            config = kwargs["config"] if "config" in kwargs else args[0]
            self.rewardspec = Advantages(*settings(config)) if chosen(config) else None
            if chosen(config) and not is_wrapped(getattr(type(self), served_by)):
                raise BindingError(f"{type(self).__name__} has a `{served_by}` of its own: {NOT_SERVED}")
            return original(self, *args, **kwargs)

        return wrapper

    return wrap


def _in_v1(module: ModuleType) -> None:
    from rewardspec.adapters.verl_rollouts import of_transfer_queue
    from rewardspec.adapters.verl_tokens import draw_for_prompts

    def compute_advantage(original):
        def wrapper(self, batch, metrics):
            advantages = getattr(self, "rewardspec", None)
            if advantages is None:
                return original(self, batch, metrics)

            def serve(rewards, mask):
                rollouts = of_transfer_queue(self, batch, mask, rewards, advantages.wanted)
                return advantages(rollouts, mask, self.global_steps, self.total_training_steps)

            with _served_by(serve):
                batch = original(self, batch, metrics)
            metrics.update(advantages.metrics())
            return batch

        return wrapper

    def submit(original):
        def wrapper(self, batch):
            if getattr(self, "rewardspec", None) is not None and self.rewardspec.spec.condition is not None:
                draw_for_prompts(self, batch)
            return original(self, batch)

        return wrapper

    _hook(module.PPOTrainer, "__init__", _trainer_init("_compute_advantage"))
    _hook(module.PPOTrainer, "_compute_advantage", compute_advantage)
    _hook(module.PPOTrainer, "_submit_batch_to_rollout", submit)


def _in_v0(module: ModuleType) -> None:
    from rewardspec.adapters.verl_rollouts import of_data_proto

    running: ContextVar = ContextVar("rewardspec_v0_trainer", default=None)

    def fit(original):
        def wrapper(self, *args, **kwargs):
            token = running.set(self if getattr(self, "rewardspec", None) is not None else None)
            try:
                return original(self, *args, **kwargs)
            finally:
                running.reset(token)

        return wrapper

    def compute_advantage(original):
        def wrapper(data, *args, **kwargs):
            trainer = running.get()
            if trainer is None:  # V1, another trainer or another estimator
                return original(data, *args, **kwargs)

            def serve(rewards, mask):
                rollouts = of_data_proto(trainer, data, mask, rewards)
                return trainer.rewardspec(rollouts, mask, trainer.global_steps, trainer.total_training_steps)

            with _served_by(serve):
                return original(data, *args, **kwargs)

        return wrapper

    def compute_data_metrics(original):
        def wrapper(*args, **kwargs):
            trainer = running.get()
            return original(*args, **kwargs) | (trainer.rewardspec.metrics() if trainer is not None else {})

        return wrapper

    _hook(module.RayPPOTrainer, "__init__", _trainer_init("fit"))
    _hook(module.RayPPOTrainer, "fit", fit)
    _hook(module, "compute_advantage", compute_advantage)
    _hook(module, "compute_data_metrics", compute_data_metrics)


def _in_agent_loop(module: ModuleType) -> None:
    from rewardspec.adapters.verl_rollouts import TOKEN
    from rewardspec.adapters.verl_tokens import conditioned, draw_for_rollouts

    def conditions(self):
        """The spec and seed of a run with reward tokens, else None; read once."""
        if not hasattr(self, "_rewardspec"):
            found = settings(self.config) if chosen(self.config) else None
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
            if conditions(self) is None:
                return await original(self, sampling_params, trajectory, **kwargs)
            kwargs = conditioned(conditions(self)[0].condition, kwargs, trajectory["validate"])
            output = await original(self, sampling_params, trajectory, **kwargs)
            if output is not None:  # V0; in V1 what a rollout was run on goes to the trainer anyway
                output.extra_fields[TOKEN] = kwargs[TOKEN]
            return output

        return wrapper

    _hook(module.AgentLoopManager, "generate_sequences", generate_sequences)
    _hook(module.AgentLoopWorker, "_run_agent_loop", run_agent_loop)


def _reported(patch: Callable) -> Callable:
    """A patch that says what goes wrong in it: verl hides what goes wrong in a plugin."""

    def wrapper(module):
        try:
            patch(module)
        except Exception:
            logger.exception("rewardspec: the adapter could not be installed in %s", module.__name__)
            raise

    return wrapper


PATCHES = {
    "verl.experimental.agent_loop.agent_loop": _reported(_in_agent_loop),
    "verl.utils.config": _reported(_in_config),
    "verl.trainer.ppo.core_algos": _reported(_in_core_algos),
    "verl.trainer.ppo.ray_trainer": _reported(_in_v0),
    "verl.trainer.ppo.v1.trainer_base": _reported(_in_v1),
}


def install() -> None:
    """Install the hooks: at once in modules that are there, in others when they are imported."""
    patch_modules(PATCHES)


install()
