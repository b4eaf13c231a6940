"""A run on a Ray cluster: the variables that `ray job submit` sets, and checks on every machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # the variable through which `ray job submit` configures its driver


def job_variables() -> dict[str, str]:
    """The environment variables in the runtime environment of this process's Ray job, if it drives one.

    Ray refuses to start if `ray.init` sets one of them, too, to any value.
    """
    try:
        found = json.loads(os.environ.get(JOB) or "{}")["runtime_env"]["env_vars"]
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def problems_everywhere(find: Callable[..., list[str]], *given) -> list[str]:
    """The problems that `find(*given)` returns on each machine with CPUs, with its address; none without Ray.

    Each machine runs it in a separate process, which ends afterwards and frees what the reward file has loaded.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if not ray.is_initialized():
        return []
    task = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(find)
    addresses = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) > 0:
            there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            addresses[task.options(scheduling_strategy=there).remote(*given)] = node["NodeManagerAddress"]
    problems = []
    for answer, address in addresses.items():
        try:
            problems += [f"on {address}: {problem}" for problem in ray.get(answer)]
        except Exception as error:  # such as: rewardspec is not installed there
            lines = [line for line in str(error).splitlines() if line.strip()]
            problems.append(f"on {address}: the reward function could not be checked: {lines[-1] if lines else error}")
    return problems
