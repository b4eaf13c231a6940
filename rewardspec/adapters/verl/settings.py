"""The settings of a verl run under `algorithm.rewardspec`, and checks that its other settings fit the spec.

All checks run before models are loaded: where training is started, and again where the trainer runs.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from rewardspec.adapters.common import liveness
from rewardspec.adapters.common.binding import BindingError, read_spec, same_meaning
from rewardspec.adapters.common.jobs import job_variables, problems_everywhere
from rewardspec.adapters.common.rollout_log import log_of
from rewardspec.lint import Run, findings
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.spec import Spec, loads
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import printed

logger = logging.getLogger(__name__)

NAME = "rewardspec"  # of the estimator, and of the section under `algorithm`
ADAPTER = "rewardspec.adapters.verl"
TESTED = ("0.9.1",)
NOT_SERVED = (
    "algorithm.adv_estimator=rewardspec is for the trainers of verl.trainer.main_ppo, V1 and V0 "
    f"(tested with verl {', '.join(TESTED)})"
)
LOG = {
    "folder": "rollout_log",
    "every": "rollout_log_every",
    "keep": "rollout_log_keep",
    "text": "rollout_log_text",
    "columns": "rollout_log_columns",
}
KEYS = ("spec", "dialect", "constants", "seed", "resume_changed", *LOG.values())
CARRIED = ("file", "json", "fingerprint")  # what `_travel` adds
MODULES = "VERL_USE_EXTERNAL_MODULES"
PLUGINS = "VERL_USE_EXTERNAL_PLUGINS"
missing_hooks: list[str] = []  # what this verl does not have, and the adapter needs


def chosen(config) -> bool:
    """Whether a run uses a spec's advantages; False for a configuration without `algorithm`."""
    return str(_get(config, "algorithm.adv_estimator")) == NAME


def settings(config) -> tuple[Spec, int]:
    """The spec and the seed of a run. Raises BindingError for settings that contradict each other."""
    section = _plain(config.algorithm.get(NAME, None)) or {}
    problems = [f"this verl has no {hook}: the adapter was tested with {', '.join(TESTED)}" for hook in missing_hooks]
    if not isinstance(section, Mapping):
        raise BindingError(f"algorithm.{NAME} is {section!r}: the keys are {', '.join(KEYS)}")
    for key in section:
        if key not in (*KEYS, *CARRIED):
            problems.append(f"unknown key algorithm.{NAME}.{key}: the keys are {', '.join(KEYS)}")
    seed = section.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        problems.append(f"algorithm.{NAME}.seed is {seed!r}: expected an integer")
    if not isinstance(section.get("resume_changed", False), bool):
        problems.append(f"algorithm.{NAME}.resume_changed is {section['resume_changed']!r}: expected true or false")
    try:
        log_of(section, LOG)
    except BindingError as error:
        problems += [f"algorithm.{NAME}: {line}" for line in str(error).splitlines()]
    if not section.get("spec"):
        problems.append(f"algorithm.{NAME}.spec is not set: add +algorithm.{NAME}.spec=PATH (or the text of a spec)")
        raise BindingError("\n".join(problems))
    try:
        spec = _read(section)
    except OSError as error:
        raise BindingError(f"algorithm.{NAME}.spec: {error}") from None
    if section.get("fingerprint") not in (None, spec.fingerprint):
        problems.append(
            f"{spec.name} has the fingerprint {spec.fingerprint} here and {section['fingerprint']} where training was "
            "started: install the same rewardspec on all machines"
        )
    problems += _contradictions(config, spec)
    if problems:
        raise BindingError("\n".join(problems))
    return spec, seed


def rollout_log(config) -> RolloutLog | None:
    """The rollout log of a run; None if it has none."""
    return log_of(_plain(config.algorithm[NAME]), LOG)


def may_resume_changed(config) -> bool:
    """Whether the run may resume from a checkpoint of another spec."""
    return bool(_get(config, f"algorithm.{NAME}.resume_changed", False))


def _read(section: Mapping, dialect: bool = True) -> Spec:
    constants, name = section.get("constants") or {}, section.get("dialect") if dialect else None
    if "file" not in section:
        return read_spec(section["spec"], constants, name)
    text = json.loads(section["spec"]) if section.get("json") else section["spec"]
    spec = loads(text, section["file"], constants=constants)  # a file that `_travel` read
    return spec if name is None else spec.under(name)


def _get(config, path: str, default=None):
    """A setting by its dotted name; the default if it is missing or None."""
    here = config
    for part in path.split("."):
        here = here.get(part, None) if hasattr(here, "get") else None
    return default if here is None else here


def _contradictions(config, spec: Spec) -> list[str]:
    """Settings of verl that would silently have no effect, with fixes."""
    found = []

    def get(path, default=None):
        return _get(config, path, default)

    def refuse(setting, fix):
        found.append(f"{setting}={get(setting)} has no effect under algorithm.adv_estimator={NAME}: {fix}")

    if get("algorithm.use_kl_in_reward"):
        refuse("algorithm.use_kl_in_reward", "for a KL penalty set actor_rollout_ref.actor.use_kl_loss=true")
    if not get("algorithm.norm_adv_by_std_in_grpo", True):
        refuse("algorithm.norm_adv_by_std_in_grpo", "remove it, and write `advantage: dr_grpo` in the spec")
    for name in ("gamma", "lam"):
        if get(f"algorithm.{name}", 1.0) != 1.0:
            refuse(f"algorithm.{name}", "remove it: a spec discounts turns itself, `returns(x, gamma=0.9)`")
    if get("algorithm.use_pf_ppo"):
        refuse("algorithm.use_pf_ppo", "remove it: it belongs to adv_estimator=gae")
    if get("algorithm.gdpo_reward_keys"):
        refuse("algorithm.gdpo_reward_keys", "remove it: the spec names its components")
    if get("algorithm.gdpo_reward_weights"):
        refuse("algorithm.gdpo_reward_weights", "remove it, and give `weight:` to components of the spec")
    if get("critic.enable"):
        refuse("critic.enable", "remove it: no advantage would be computed from the critic")
    overlong = "reward.reward_kwargs.overlong_buffer_cfg.enable"
    if get(overlong) and "score" not in spec.columns:
        refuse(overlong, "write `overlong(tokens, LIMIT, BUFFER)` in the spec, or read `score` there")
    if get("custom_reward_function.path") and not get("reward.custom_reward_function.path"):
        found.append("verl ignores custom_reward_function.path: set reward.custom_reward_function.path")
    manager = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    if spec.condition is not None and get(manager):
        found.append(f"{manager}={get(manager)}: reward tokens (`condition:`) need verl's own agent loop manager")
    return found + _filter_problems(config, spec)


def _filter_problems(config, spec: Spec) -> list[str]:
    """Why `algorithm.filter_groups` cannot test groups under the spec, with fixes."""
    where = "algorithm.filter_groups"
    if not _get(config, f"{where}.enable", False):
        return []
    found = [f"{where}: {problem}" for problem in liveness.undecided(spec)]
    metric, sampler = _get(config, f"{where}.metric"), "trainer.v1.sampler.custom_sampler.path"
    if metric not in (None, "reward", NAME):
        found.append(
            f"{where}.metric={metric} has no effect under algorithm.adv_estimator={NAME}: groups that are dead under "
            f"the spec are filtered; remove it, or set {where}.metric={NAME}"
        )
    if not _get(config, "trainer.use_v1", True):
        found.append(f"{where}.enable=True has no effect with trainer.use_v1=False: remove one of the two")
    if _get(config, sampler):
        found.append(f"{sampler}={_get(config, sampler)} already filters groups: remove it or {where}.enable")
    return found


def _needs_groups(spec: Spec) -> bool:
    """Whether a spec gives no advantage to groups of one rollout."""
    return any(found.code == "group-of-one" for found in findings(spec, Run(sizes=(1,))).warnings)


def _plain(section):
    from omegaconf import OmegaConf

    return OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section


# Where training is started


def check_run(config) -> None:
    """Check a run before it starts, warn about untested versions, and put the spec into its configuration."""
    if not chosen(config):
        if _get(config, f"algorithm.{NAME}"):
            raise BindingError(
                f"algorithm.{NAME} is set, but algorithm.adv_estimator={config.algorithm.adv_estimator} does not "
                f"read it: set algorithm.adv_estimator={NAME}, or remove algorithm.{NAME}"
            )
        return
    spec, _ = settings(config)
    if _get(config, f"algorithm.{NAME}.fingerprint"):  # has started already: V0 checks again, in its actor
        return
    try:
        found = version("verl")
    except PackageNotFoundError:
        found = "of unknown version"
    if found not in TESTED:
        logger.warning("rewardspec: this is verl %s; the adapter was tested with %s", found, ", ".join(TESTED))
    _check_start(config, spec)
    _travel(config, spec)
    print(printed(f"[rewardspec] advantages of {shorten(spec.name)!r}, fingerprint {spec.fingerprint}"))


def _check_start(config, spec: Spec) -> None:
    """Raise BindingError for a wrong group size or reward file, seen where training is started."""
    problems = []
    if _get(config, "actor_rollout_ref.rollout.n") == 1 and _needs_groups(spec):
        problems.append(
            "actor_rollout_ref.rollout.n=1: in groups of one no rollout has an advantage; set "
            "actor_rollout_ref.rollout.n=8, for example, or compare with the batch in the spec"
        )
    problems += reward_problems(config)
    if problems:
        raise BindingError("\n".join(problems))


def _travel(config, spec: Spec) -> None:
    """Put the spec and the adapter into the configuration, for actors on other machines or in other folders."""
    from omegaconf import open_dict

    section = config.algorithm[NAME]
    with open_dict(config):
        if "\n" not in section.spec:
            text = spec.source.text.rstrip("\n") + "\n"
            section.file = str(section.spec)
            section.json = "${" in text  # would be taken for an interpolation
            section.spec = json.dumps(text).replace("$", "\\u0024") if section.json else text
        section.fingerprint = spec.fingerprint
        if section.get(LOG["folder"]):  # as seen from here: workers may start in another folder
            section[LOG["folder"]] = os.path.abspath(str(section[LOG["folder"]]))
    if _get(config, "ray_kwargs") is not None:
        _import_in_actors(config)


def _import_in_actors(config) -> None:
    """Let Ray's workers import the adapter, like the process that starts the training.

    A job (`ray job submit`) may set the variable in its own runtime environment. Ray refuses it if both set it.
    """
    from omegaconf import OmegaConf, open_dict

    where = "ray_kwargs.ray_init.runtime_env.env_vars"
    given, of_job = _get(config, f"{where}.{MODULES}"), job_variables().get(MODULES)
    with open_dict(config):
        if of_job is None:
            modules = dict.fromkeys([*_names(given or os.environ.get(MODULES)), ADAPTER])
            OmegaConf.update(config, f"{where}.{MODULES}", ",".join(modules), force_add=True)
            return
        if left := [name for name in _names(given) if name not in _names(of_job)]:
            raise BindingError(
                f"{where}.{MODULES}={given}, but the job's own runtime environment has {of_job}, and Ray accepts only "
                f"one: add {','.join(left)} there, and remove this"
            )
        if ADAPTER not in _names(of_job) and not _is_plugin(job_variables()):
            raise BindingError(
                f"the job's own runtime environment has {MODULES}={of_job!r}, which workers import, without "
                f"the adapter: set {','.join([*_names(of_job), ADAPTER])} there"
            )
        if given is not None:
            del OmegaConf.select(config, where)[MODULES]


def _names(modules: str | None) -> list[str]:
    return [name for name in map(str.strip, (modules or "").split(",")) if name]


def _is_plugin(variables: Mapping[str, str]) -> bool:
    """Whether verl finds the adapter as an installed plugin in workers with these variables."""
    policy = variables.get(PLUGINS, os.environ.get(PLUGINS, "auto")).strip().lower()
    found = [point.name for point in entry_points(group="verl.plugins") if point.value == ADAPTER]
    return any(policy == "auto" or name in _names(policy) for name in found)


# The reward function, tried before models are loaded


def reward_problems(config) -> list[str]:
    """Problems with the reward function of a run, which this process loads like verl."""
    path = _get(config, "reward.custom_reward_function.path")
    if not path:
        return []
    where = f"reward.custom_reward_function.path={path}"
    if "://" not in path and not Path(path).exists():
        return [f"{where}: there is no such file in {Path.cwd()}"]
    from verl.trainer.ppo.reward import get_custom_reward_fn, resolve_reward_manager_cls

    try:
        function = get_custom_reward_fn(config)
    except Exception as error:
        cause = error.__cause__ or error
        return [f"{where} cannot be loaded: {type(cause).__name__}: {cause}"]
    try:
        resolve_reward_manager_cls(config)
    except Exception as error:
        return [f"reward.reward_manager cannot be loaded: {type(error).__name__}: {error}"]
    scored = getattr(next(iter(getattr(function, "args", ())), None), "spec", None)  # set by `for_verl`
    return [] if scored is None else [f"{where}: {problem}" for problem in _other_spec(config, scored)]


def _other_spec(config, scored: Spec) -> list[str]:
    """A line if rollouts are scored by another spec than the one that computes advantages."""
    section = _plain(config.algorithm.get(NAME))
    own = _read(section, dialect=False)
    if same_meaning(own, scored):
        return []
    constants = ", ".join(f"{name}={value}" for name, value in (section.get("constants") or {}).items())
    constants = f" with constants {constants}" if constants else ""
    return [
        f"it scores by {shorten(scored.name)!r}, fingerprint {scored.fingerprint}, but advantages are by "
        f"{shorten(own.name)!r}{constants}, fingerprint {own.fingerprint}: load one file with the same constants in "
        "both, `for_verl(rewardspec.load(PATH, constants={...}))`, or let `rewardspec compile SPEC --target verl "
        "--set NAME=VALUE -o DIR` write both"
    ]


def check_workers(config) -> None:
    """Raise BindingError unless the reward function can be loaded on every machine that may score rollouts."""
    if _get(config, "reward.custom_reward_function.path") and (found := problems_everywhere(reward_problems, config)):
        raise BindingError("\n".join(found))
