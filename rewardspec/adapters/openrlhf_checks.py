"""What of an OpenRLHF run goes against a spec, found before training starts; and names that both sides go by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rewardspec.adapters.binding import BindingError
from rewardspec.compiler import Spec

TESTED = ("0.11.2",)
WAS_TESTED = f"the adapter was tested with {', '.join(TESTED)}"
ESTIMATOR = "group_norm"  # the one that says: groups, no critic, nothing whitened afterwards
FILLED_IN = ("tokens", "truncated", "reward")  # what the adapter knows of every rollout
ITS_OWN = ("score", "response_clip_ratio")  # what OpenRLHF puts beside `extra_logs`
LATER = ("kl", "logprobs_diff")  # what it measures once rollouts are there
OVERWRITTEN = (*LATER, "group_reward_std", "return")  # names of its own, whatever `extra_logs` hold


def check_settings(args, spec: Spec) -> None:
    """Raise BindingError unless arguments of `train_ppo_ray` go with the spec. args: nested, as OpenRLHF has them."""
    problems = _needs(args, spec) + _ignored(args, spec)
    if problems:
        raise BindingError("\n".join(problems))


def check_files(args) -> None:
    """Raise BindingError for a reward function's file that is not there, where training is started."""
    url = setting(args, "reward.remote_url")
    for path in [url] if isinstance(url, str) else url or []:
        if path.endswith(".py") and not Path(path).exists():
            raise BindingError(f"--reward.remote_url {path}: there is no such file in {Path.cwd()}")


def setting(args, path: str, default=None):
    """A nested argument by its dotted name; the default where this OpenRLHF has none, or None."""
    for part in path.split("."):
        args = getattr(args, part, None)
        if args is None:
            return default
    return args


def _needs(args, spec: Spec) -> list[str]:
    """What has to be otherwise, with ways out."""
    found = []
    estimator = setting(args, "algo.advantage.estimator")
    if estimator is None or setting(args, "rollout.n_samples_per_prompt") is None:
        return [f"this OpenRLHF has no algo.advantage.estimator or rollout.n_samples_per_prompt: {WAS_TESTED}"]
    if estimator != ESTIMATOR:
        found.append(
            f"--algo.advantage.estimator {estimator}: pass {ESTIMATOR} (groups without a critic); "
            f"the advantages are those of {spec.name} then"
        )
    found += cannot_carry(spec)
    scored = [name for name in spec.columns if name not in (*FILLED_IN, *LATER, "response_clip_ratio")]
    if scored and not setting(args, "reward.remote_url") and not setting(args, "train.agent_func_path"):
        found.append(
            f"nothing measures {listed(scored)}: a reward model gives `reward` alone; return them under `extra_logs` "
            "from `reward_func` in a file, --reward.remote_url FILE.py (or from an agent, --train.agent_func_path)"
        )
    return found


def cannot_carry(spec: Spec) -> list[str]:
    """What of a spec OpenRLHF has no way to carry, with ways out."""
    found = []
    if spec.condition is not None:
        found.append(
            f"{spec.name} has reward tokens (`condition:`): OpenRLHF gives one prompt text to a whole group, so they "
            "cannot be put in; take the adapter for TRL or verl, or leave the section out"
        )
    for name in spec.columns:
        symbols = spec.program.columns[name].domain.symbols
        if symbols:
            found.append(
                f"`{name}` holds names, and OpenRLHF carries numbers alone: declare "
                f"`values: [{', '.join(map(str, range(len(symbols))))}]` and compare with these"
            )
    return found


def _ignored(args, spec: Spec) -> list[str]:
    """Settings that would silently have no effect, with ways out."""
    found = []

    def refuse(name, way_out):
        found.append(f"--{name} {setting(args, name)} would have no effect: {way_out}")

    for name in ("algo.advantage.gamma", "algo.advantage.lambd"):
        if setting(args, name, 1.0) != 1.0:
            refuse(name, "leave it out; a spec gives one advantage to a whole response")
    if setting(args, "algo.advantage.no_std_norm"):
        found.append("--algo.advantage.no_std_norm would have no effect: say `advantage: dr_grpo`, say, in the spec")
    clip = setting(args, "reward.clip_range")
    if clip and tuple(clip) != (-10, 10):  # the default
        ends = ", ".join(f"{end:g}" for end in clip)
        found.append(f"--reward.clip_range would have no effect: say `advantage: clip(..., {ends})` in the spec")
    if "reward" not in spec.columns:
        if setting(args, "reward.overlong_buffer_len") is not None:
            way_out = "say `overlong(tokens, LIMIT, BUFFER)` in the spec, or read `reward` there"
            refuse("reward.overlong_buffer_len", way_out)
        if setting(args, "reward.stop_properly_penalty_coef") is not None:
            refuse("reward.stop_properly_penalty_coef", "read `truncated` in the spec, or `reward`")
    return found


def total_steps(args, prompts: int) -> int:
    """How many training steps the prompts of the data set are enough for; the last of an episode can be a small one.

    OpenRLHF's own `max_steps` counts steps of the optimizer, which are more.
    """
    size = args.rollout.batch_size
    per_step = min(size, setting(args, "rollout.vllm_generate_batch_size") or size)
    return max(1, args.train.num_episodes * math.ceil(prompts / per_step))


def listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"
