"""The files of `rewardspec compile SPEC --target trl`."""

from __future__ import annotations

from rewardspec.adapters.common.binding import BindingError
from rewardspec.adapters.common.embedding import Given, head, others
from rewardspec.adapters.common.rewards import AUTOMATIC
from rewardspec.spec import Spec
from rewardspec.text.quoting import yaml


def files(spec: Spec, given: Given) -> dict[str, str]:
    """A configuration for `trl grpo` and `trl rloo`. Raises BindingError for a seed, or constants with commas."""
    if given.seed is not None:
        raise BindingError("TRL draws with its own `seed`: set that, and pass no seed here")
    if any("," in value for value in given.constants.values()):
        raise BindingError(
            "REWARDSPEC_SET separates constants by commas: change `define:` instead of setting such a constant"
        )
    text = spec.source.text
    variables = {"REWARDSPEC": text if text.endswith("\n") else f"{text}\n"}  # a text without a break is a path
    if spec.dialect:
        variables["REWARDSPEC_DIALECT"] = spec.dialect
    if any(use.python is not None for use in spec.uses.values()):  # modules that the spec may import its functions from
        variables["REWARDSPEC_ALLOW_PYTHON"] = ",".join(given.allowed)
    if given.constants:
        variables["REWARDSPEC_SET"] = ",".join(f"{name}={value}" for name, value in given.constants.items())
    own = [name for name in others(spec, AUTOMATIC) if not spec.program.columns[name].domain.nominal]
    functions = ["rewardspec.adapters.trl_hook.spec", *(f"my_rewards.{name}" for name in own)]
    note = (
        "# my_rewards: your module with a function for each name; a column of the data set needs none\n" if own else ""
    )
    lines = f"""# {head(spec, "TRL 1.16.0")}
# Usage: trl grpo --config trl.yaml, with model, data set and settings added.
{yaml({"env": variables})}{note}{yaml({"reward_funcs": functions})}"""
    return {"trl.yaml": lines}
