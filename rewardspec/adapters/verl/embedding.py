"""The files of `rewardspec compile SPEC --target verl`."""

from __future__ import annotations

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.embedding import Given, asks_for, head, reward_file
from rewardspec.adapters.common.rewards import AUTOMATIC
from rewardspec.spec import Spec
from rewardspec.text.quoting import hydra, shell

FILLED = (*AUTOMATIC, "score")  # columns that the adapter measures itself


def files(spec: Spec, given: Given) -> dict[str, str]:
    """A script that starts verl, and its reward file. Raises BindingError for constants that Hydra cannot carry."""
    more = {"dialect": spec.dialect} if spec.dialect else {}
    more |= {f"constants.{name}": _overridden(value) for name, value in given.constants.items()}
    more |= {"seed": str(given.seed)} if given.seed is not None else {}
    settings = "".join(f"  {shell(f'+algorithm.rewardspec.{name}={value}')} \\\n" for name, value in more.items())
    lines = f"""#!/usr/bin/env bash
# {head(spec, "verl 0.9.1")}
# reward.py: {asks_for(spec, FILLED, '(`compute_score`) a dict with "score"')}.
# verl's default is groups of one: set actor_rollout_ref.rollout.n.
# Usage: ./run_verl.sh reward.py [further overrides of verl.trainer.main_ppo]
set -euo pipefail
here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"
reward="${{1:?usage: ./run_verl.sh reward.py [overrides]}}"
shift
# Paths as Hydra reads them, whatever characters they have.
spec="$(python -m rewardspec.text.quoting "$here/spec.yaml")"
reward="$(python -m rewardspec.text.quoting "$reward")"
export VERL_USE_EXTERNAL_MODULES="${{VERL_USE_EXTERNAL_MODULES:+$VERL_USE_EXTERNAL_MODULES,}}rewardspec.adapters.verl"
exec python -m verl.trainer.main_ppo \\
  algorithm.adv_estimator=rewardspec \\
  +algorithm.rewardspec.spec="$spec" \\
{settings}  reward.custom_reward_function.path="$reward" \\
  "$@"
"""
    return {"run_verl.sh": lines} | reward_file(spec, given, FILLED, "verl", "compute_score")


def _overridden(constant: str) -> str:
    """A constant as Hydra reads it. Raises BindingError."""
    try:
        return hydra(constant)
    except ValueError as error:
        raise BindingError(f"verl's command line cannot carry a constant: {error}") from None
