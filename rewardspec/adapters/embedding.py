"""What a trainer's configuration needs of a spec, as files: for `rewardspec compile SPEC --target TRAINER -o DIR`."""

from __future__ import annotations

from pathlib import Path

from rewardspec.compiler import Spec

FILLED = ("tokens", "truncated")  # columns that adapters measure themselves


def embedded(spec: Spec, target: str) -> dict[str, str]:
    """File names and texts: the spec as it stands, the stand-alone module, and the configuration of `target`."""
    return {"spec.yaml": spec.source.text, "advantage.py": spec.python} | TARGETS[target](spec)


def _head(spec: Spec, what: str) -> str:
    return f"# {what} with the advantages of {spec.name}, fingerprint {spec.fingerprint}.\n"


def _others(spec: Spec) -> list[str]:
    """The columns that neither the trainer nor the spec itself measures."""
    return [name for name in spec.columns if name not in FILLED and name not in spec.uses]


def _measured(spec: Spec) -> str:
    names = ", ".join(name for name in spec.columns if name not in FILLED)
    return names + (" (the one beside this does)" if spec.uses and not _others(spec) else "")


def _reward_file(spec: Spec, trainer: str, name: str) -> dict[str, str]:
    """The module that a trainer imports for its reward function, for a spec that measures everything itself."""
    if not spec.uses or _others(spec):
        return {}
    text = f"""{_head(spec, "Reward functions")}from pathlib import Path

import rewardspec
from rewardspec.rewards import for_{trainer}

{name} = for_{trainer}(rewardspec.load(Path(__file__).with_name("spec.yaml")))
"""
    return {"reward.py": text}


def _verl(spec: Spec) -> dict[str, str]:
    dialect = f"  +algorithm.rewardspec.dialect={spec.dialect} \\\n" if spec.dialect else ""
    lines = f"""#!/usr/bin/env bash
{_head(spec, "verl 0.9.1")}# reward.py: `compute_score` returns a dict with "score" and {_measured(spec)}.
# Usage: ./run_verl.sh reward.py [further overrides of verl.trainer.main_ppo]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
reward="$1"
shift
export VERL_USE_EXTERNAL_MODULES=rewardspec.adapters.verl
exec python -m verl.trainer.main_ppo \\
  algorithm.adv_estimator=rewardspec \\
  +algorithm.rewardspec.spec="$here/spec.yaml" \\
{dialect}  reward.custom_reward_function.path="$reward" \\
  "$@"
"""
    return {"run_verl.sh": lines} | _reward_file(spec, "verl", "compute_score")


def _trl(spec: Spec) -> dict[str, str]:
    text = "".join(f"    {line}".rstrip() + "\n" for line in spec.source.text.splitlines())
    dialect = f"  REWARDSPEC_DIALECT: {spec.dialect}\n" if spec.dialect else ""
    functions = "".join(f"  - my_rewards.{name}\n" for name in _others(spec))
    lines = f"""{_head(spec, "TRL 1.16.0")}# Usage: trl grpo --config trl.yaml, with model, data set and settings added.
env:
  REWARDSPEC: |
{text}{dialect}reward_funcs:
  - rewardspec.adapters.trl_hook.spec
  # one function for each of these, wherever it is; a column of the data set needs none
{functions}"""
    return {"trl.yaml": lines}


def _openrlhf(spec: Spec) -> dict[str, str]:
    dialect = f"--dialect {spec.dialect} " if spec.dialect else ""
    lines = f"""#!/usr/bin/env bash
{_head(spec, "OpenRLHF 0.11.2")}# The reward function returns "rewards", "scores" and "extra_logs" with:
# {_measured(spec)}.
# Usage: ./run_openrlhf.sh [arguments of openrlhf.cli.train_ppo_ray]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
exec python -m rewardspec.adapters.openrlhf --spec "$here/spec.yaml" {dialect}-- "$@"
"""
    return {"run_openrlhf.sh": lines} | _reward_file(spec, "openrlhf", "reward_func")


TARGETS = {"trl": _trl, "verl": _verl, "openrlhf": _openrlhf}


def write(files: dict[str, str], folder: Path) -> list[Path]:
    """The files written into a folder, which is made; scripts can be run. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8", newline="\n")
        if name.endswith(".sh"):
            path.chmod(0o755)
        paths.append(path)
    return paths
