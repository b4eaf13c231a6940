"""The files of `rewardspec compile SPEC --target openrlhf`."""

from __future__ import annotations

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.embedding import Given, asks_for, head, reward_file
from rewardspec.adapters.openrlhf.checks import FILLED_IN, ITS_OWN, LATER, cannot_carry
from rewardspec.spec import Spec
from rewardspec.text.quoting import shell

FILLED = (*FILLED_IN, *ITS_OWN, *LATER)  # columns that the adapter measures itself


def files(spec: Spec, given: Given) -> dict[str, str]:
    """A script that starts OpenRLHF, and its reward file. Raises BindingError for specs OpenRLHF cannot carry."""
    problems = cannot_carry(spec)
    if problems:
        raise BindingError("\n".join(problems))
    more = ["--dialect", spec.dialect] if spec.dialect else []
    more += [part for name, value in given.constants.items() for part in ("--set", f"{name}={value}")]
    more += ["--seed", str(given.seed)] if given.seed is not None else []
    settings = "".join(f"{shell(part)} " for part in more)
    own = '"rewards", "scores" and "extra_logs", a dict with a tensor for each column:'
    lines = f"""#!/usr/bin/env bash
# {head(spec, "OpenRLHF 0.11.2")}
# Reward function: {asks_for(spec, FILLED, own)}.
# Usage: ./run_openrlhf.sh [arguments of openrlhf.cli.train_ppo_ray]
set -euo pipefail
here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"
exec python -m rewardspec.adapters.openrlhf --spec "$here/spec.yaml" {settings}-- "$@"
"""
    return {"run_openrlhf.sh": lines} | reward_file(spec, given, FILLED, "openrlhf", "reward_func")
