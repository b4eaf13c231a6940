"""Checks before training that an OpenRLHF run does not contradict the spec; and the names of OpenRLHF's columns."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path

from rewardspec.adapters.common import liveness
from rewardspec.adapters.common.binding import BindingError, listed, same_meaning
from rewardspec.spec import Spec, loads
from rewardspec.text.diagnostics import shorten

TESTED = ("0.11.2",)
WAS_TESTED = f"the adapter was tested with {', '.join(TESTED)}"
ESTIMATOR = "group_norm"  # the estimator with groups, without a critic, and without whitening afterwards
FILLED_IN = ("tokens", "truncated", "reward")  # the adapter fills them in for every rollout
ITS_OWN = ("score", "response_clip_ratio")  # OpenRLHF adds them to `extra_logs`
LATER = ("kl", "logprobs_diff")  # OpenRLHF measures them after generation
OVERWRITTEN = (*LATER, "group_reward_std", "return")  # OpenRLHF overwrites them in `extra_logs`


def check_settings(args, spec: Spec) -> None:
    """Raise BindingError if arguments of `train_ppo_ray` contradict the spec. args: nested, as in OpenRLHF."""
    problems = _needs(args, spec) + _ignored(args, spec) + _filter_problems(args, spec)
    if problems:
        raise BindingError("\n".join(problems))


def reward_problems(remote_url, agent: str | None, text: str, name: str, constants: Mapping[str, str]) -> list[str]:
    """Problems with the files that score rollouts, which this process loads like OpenRLHF.

    remote_url, agent: arguments of `train_ppo_ray`. text, name, constants: of the run's spec.
    """
    endpoints = [remote_url] if isinstance(remote_url, str) else list(remote_url or [])
    found = []
    for option, path in (*(("reward.remote_url", url) for url in endpoints), ("train.agent_func_path", agent)):
        if path and path.endswith(".py") and not Path(path).exists():
            found.append(f"--{option} {path}: there is no such file in {Path.cwd()}")
    if found or agent or not (endpoints and endpoints[0].endswith(".py")):
        return found
    where = f"--reward.remote_url {endpoints[0]}"
    try:
        module = importlib.util.spec_from_file_location("reward_func", endpoints[0])
        assert module is not None and module.loader is not None  # of a file that ends in .py
        loaded = importlib.util.module_from_spec(module)
        module.loader.exec_module(loaded)
        function = loaded.reward_func
    except Exception as error:
        return [f"{where} cannot be loaded: {type(error).__name__}: {error}"]
    scored = getattr(function, "spec", None)  # set by `for_openrlhf`
    if scored is None:
        return []
    own = loads(text, name, constants=constants)
    if same_meaning(own, scored):
        return []
    given = ", ".join(f"{name}={value}" for name, value in constants.items())
    return [
        f"{where}: it scores by {shorten(scored.name)!r}, fingerprint {scored.fingerprint}, but advantages are by "
        f"{shorten(own.name)!r}{f' with constants {given}' if given else ''}, fingerprint {own.fingerprint}: load one "
        "file with the same constants in both, `for_openrlhf(rewardspec.load(PATH, constants={...}))`, or let "
        "`rewardspec compile SPEC --target openrlhf --set NAME=VALUE -o DIR` write both"
    ]


def setting(args, path: str, default=None):
    """A nested argument by its dotted name; the default if it is missing or None."""
    for part in path.split("."):
        args = getattr(args, part, None)
        if args is None:
            return default
    return args


def _needs(args, spec: Spec) -> list[str]:
    """Settings that must change, with fixes."""
    found = []
    estimator = setting(args, "algo.advantage.estimator")
    if estimator is None or setting(args, "rollout.n_samples_per_prompt") is None:
        return [f"this OpenRLHF has no algo.advantage.estimator or rollout.n_samples_per_prompt: {WAS_TESTED}"]
    if estimator != ESTIMATOR:
        found.append(
            f"--algo.advantage.estimator {estimator}: pass {ESTIMATOR} (groups without a critic); "
            f"{spec.name} then computes the advantages"
        )
    found += cannot_carry(spec)
    scored = [name for name in spec.columns if name not in (*FILLED_IN, *LATER, "response_clip_ratio")]
    if scored and not setting(args, "reward.remote_url") and not setting(args, "train.agent_func_path"):
        found.append(
            f"nothing measures {listed(scored)}: a reward model gives only `reward`; return them under `extra_logs` "
            "from `reward_func` in a file, --reward.remote_url FILE.py (or from an agent, --train.agent_func_path)"
        )
    return found


def cannot_carry(spec: Spec) -> list[str]:
    """Parts of a spec that OpenRLHF cannot carry, with fixes."""
    found = []
    if spec.condition is not None:
        found.append(
            f"{spec.name} has reward tokens (`condition:`): OpenRLHF uses one prompt text for a whole group, so "
            "tokens cannot be inserted; use the adapter for TRL or verl, or remove the section"
        )
    for name in spec.columns:
        symbols = spec.program.columns[name].domain.symbols
        if symbols:
            found.append(
                f"the values of `{name}` are names, but OpenRLHF carries only numbers: declare "
                f"`values: [{', '.join(map(str, range(len(symbols))))}]` and compare with these"
            )
    return found


def _ignored(args, spec: Spec) -> list[str]:
    """Settings that would silently have no effect, with fixes."""
    found = []

    def refuse(name, fix):
        found.append(f"--{name} {setting(args, name)} has no effect: {fix}")

    for name in ("algo.advantage.gamma", "algo.advantage.lambd"):
        if setting(args, name, 1.0) != 1.0:
            refuse(name, "remove it; a spec discounts turns itself, `returns(x, gamma=0.9)`")
    if setting(args, "algo.advantage.no_std_norm"):
        found.append("--algo.advantage.no_std_norm has no effect: write `advantage: dr_grpo`, for example, in the spec")
    clip = setting(args, "reward.clip_range")
    if clip and tuple(clip) != (-10, 10):  # the default
        ends = ", ".join(f"{end:g}" for end in clip)
        found.append(f"--reward.clip_range has no effect: write `advantage: clip(..., {ends})` in the spec")
    if "reward" not in spec.columns:
        if setting(args, "reward.overlong_buffer_len") is not None:
            fix = "write `overlong(tokens, LIMIT, BUFFER)` in the spec, or read `reward` there"
            refuse("reward.overlong_buffer_len", fix)
        if setting(args, "reward.stop_properly_penalty_coef") is not None:
            refuse("reward.stop_properly_penalty_coef", "read `truncated` in the spec, or `reward`")
    return found


def _filter_problems(args, spec: Spec) -> list[str]:
    """Why dynamic filtering cannot test groups under the spec, with fixes."""
    where = "--algo.dynamic_filtering_enable"
    if not setting(args, "algo.dynamic_filtering_enable"):
        return []
    found = [f"{where}: {problem}" for problem in liveness.undecided(spec)]
    ends = setting(args, "algo.dynamic_filtering_range", (0, 1))
    if tuple(ends) != (0, 1):  # the default
        found.append(
            "--algo.dynamic_filtering_range has no effect: groups that are dead under the spec are filtered; remove it"
        )
    late = [name for name in spec.columns if name in LATER]
    late += ["reward"] if "reward" in spec.columns and not setting(args, "reward.remote_url") else []
    if late:
        found.append(f"{where}: {listed(late)} is unknown when groups are filtered: remove it or the filter")
    if setting(args, "train.async_enable") and liveness.depends_on_moment(spec):
        found.append(
            f"{where}: the asynchronous trainer generates without knowing the step, which {spec.name} reads: "
            "remove --train.async_enable or the schedule"
        )
    return found


def total_steps(args, prompts: int) -> int:
    """The number of training steps that the data set's prompts last for; the last step of an episode can be smaller.

    OpenRLHF's own `max_steps` counts optimizer steps, which are more.
    """
    size = args.rollout.batch_size
    per_step = min(size, setting(args, "rollout.vllm_generate_batch_size") or size)
    return max(1, args.train.num_episodes * math.ceil(prompts / per_step))
