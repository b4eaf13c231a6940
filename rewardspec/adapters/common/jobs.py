"""A run on a Ray cluster: what `ray job submit` sets for it, and whether all machines can do their part."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what `ray job submit` tells its driver, in Ray's own name


def job_variables() -> dict[str, str]:
    """The environment variables in the runtime environment of the job that this process drives, if it is one.

    Ray refuses to start where `ray.init` names one of them as well, whatever its value.
    """
    try:
        found = json.loads(os.environ.get(JOB) or "{}")["runtime_env"]["env_vars"]
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def problems_everywhere(find: Callable[..., list[str]], *given) -> list[str]:
    """What `find(*given)` finds on each machine that has a CPU to give, with its address; nothing without Ray.

    Each machine asks in a process of its own, which ends after: what a file takes hold of does not stay.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if not ray.is_initialized():
        return []
    asked = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(find)
    addresses = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) > 0:
            there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            addresses[asked.options(scheduling_strategy=there).remote(*given)] = node["NodeManagerAddress"]
    problems = []
    for answer, address in addresses.items():
        try:
            problems += [f"on {address}: {problem}" for problem in ray.get(answer)]
        except Exception as error:  # such as: rewardspec is not installed there
            lines = [line for line in str(error).splitlines() if line.strip()]
            problems.append(f"on {address}: the reward function could not be tried: {lines[-1] if lines else error}")
    return problems
