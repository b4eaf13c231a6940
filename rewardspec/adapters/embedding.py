"""What a trainer's configuration needs of a spec, as files: for `rewardspec compile SPEC --target TRAINER -o DIR`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardspec.adapters.binding import BindingError
from rewardspec.adapters.openrlhf_checks import FILLED_IN, ITS_OWN, LATER, cannot_carry
from rewardspec.rewards.permission import Allowed, read_allowed
from rewardspec.rewards.trainers import AUTOMATIC
from rewardspec.spec import Spec
from rewardspec.text.quoting import comment, hydra, python_file, shell, yaml

FILLED = {  # columns that adapters measure themselves
    "trl": AUTOMATIC,
    "verl": (*AUTOMATIC, "score"),
    "openrlhf": (*FILLED_IN, *ITS_OWN, *LATER),
}


@dataclass(frozen=True)
class Given:
    """What a run says beside the text of a spec.

    constants: texts for names of `define:`, which it was read with. allowed: what may be imported of `python:`.
    """

    constants: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    allowed: Sequence[str] = ()


def embedded(
    spec: Spec,
    target: str,
    allow_python: Allowed = False,
    constants: Mapping[str, object] = {},
    seed: int | None = None,
) -> dict[str, str]:
    """File names and texts: the spec as it stands, the stand-alone module, and the configuration of `target`.

    allow_python: what the files allow of functions that the spec names by `python:`; True for all of them.
    constants: what the spec was read with; the configuration hands them on, and so it does the seed.
    Raises BindingError for a spec, a constant or a seed that the trainer cannot carry.
    """
    names = read_allowed(allow_python)
    own = sorted({use.python for use in spec.uses.values() if use.python is not None})
    texts = {name: str(value) for name, value in constants.items()}
    given = Given(texts, seed, own if names is True else list(names or ()))
    return {"spec.yaml": spec.source.text, "advantage.py": spec.python} | TARGETS[target](spec, given)


def _head(spec: Spec, what: str) -> str:
    return comment(f"{what} with the advantages of fingerprint {spec.fingerprint}: {spec.name}")


def _others(spec: Spec, target: str) -> list[str]:
    """The columns that neither the trainer nor the spec itself measures."""
    return [name for name in spec.columns if name not in FILLED[target] and name not in spec.uses]


def _reward_file(spec: Spec, given: Given, target: str, name: str) -> dict[str, str]:
    """The module that a trainer imports for its reward function, for a spec that measures something itself."""
    if not spec.uses:
        return {}
    left = ", ".join(_others(spec, target))
    note = [f"It measures all but {left}: add these to what it returns."] if left else []
    constants = f", constants={dict(given.constants)!r}" if given.constants else ""
    needed = any(use.python is not None for use in spec.uses.values())
    permission = f", allow_python={given.allowed!r}" if needed else ""
    if needed and not given.allowed:
        note.append("The spec names functions of its own: say in allow_python which modules it may import.")
    body = f"""from pathlib import Path

import rewardspec
from rewardspec.rewards import for_{target}

{name} = for_{target}(rewardspec.load(Path(__file__).with_name("spec.yaml"){constants}){permission})
"""
    return {"reward.py": python_file([_head(spec, "Reward functions"), *note], body)}


def _asks_for(spec: Spec, target: str, own: str) -> str:
    """What the reward function of a trainer has to return, in words. own: what the trainer wants besides."""
    if spec.uses:
        left = ", ".join(_others(spec, target))
        return "the one beside this" + (f", with {left} added" if left else "")
    names = ", ".join(_others(spec, target))
    return f"returns {own}" + (f" and {names}" if names else "")


def _verl(spec: Spec, given: Given) -> dict[str, str]:
    more = {"dialect": spec.dialect} if spec.dialect else {}
    more |= {f"constants.{name}": _overridden(value) for name, value in given.constants.items()}
    more |= {"seed": str(given.seed)} if given.seed is not None else {}
    settings = "".join(f"  {shell(f'+algorithm.rewardspec.{name}={value}')} \\\n" for name, value in more.items())
    lines = f"""#!/usr/bin/env bash
# {_head(spec, "verl 0.9.1")}
# reward.py: {_asks_for(spec, "verl", '(`compute_score`) a dict with "score"')}.
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
    return {"run_verl.sh": lines} | _reward_file(spec, given, "verl", "compute_score")


def _overridden(constant: str) -> str:
    """A constant as Hydra reads it. Raises BindingError."""
    try:
        return hydra(constant)
    except ValueError as error:
        raise BindingError(f"verl's command line cannot carry a constant: {error}") from None


def _trl(spec: Spec, given: Given) -> dict[str, str]:
    if given.seed is not None:
        raise BindingError("TRL draws by its own `seed`: set that, and leave the seed out here")
    if any("," in value for value in given.constants.values()):
        raise BindingError("REWARDSPEC_SET separates constants by commas: change `define:` in place of such a constant")
    text = spec.source.text
    variables = {"REWARDSPEC": text if text.endswith("\n") else f"{text}\n"}  # a text without a break is a path
    if spec.dialect:
        variables["REWARDSPEC_DIALECT"] = spec.dialect
    if any(use.python is not None for use in spec.uses.values()):  # modules that the spec may import its functions from
        variables["REWARDSPEC_ALLOW_PYTHON"] = ",".join(given.allowed)
    if given.constants:
        variables["REWARDSPEC_SET"] = ",".join(f"{name}={value}" for name, value in given.constants.items())
    own = [name for name in _others(spec, "trl") if spec.program.columns[name].domain.symbols is None]
    functions = ["rewardspec.adapters.trl_hook.spec", *(f"my_rewards.{name}" for name in own)]
    note = "# my_rewards: a function for each, wherever it is; a column of the data set needs none\n" if own else ""
    lines = f"""# {_head(spec, "TRL 1.16.0")}
# Usage: trl grpo --config trl.yaml, with model, data set and settings added.
{yaml({"env": variables})}{note}{yaml({"reward_funcs": functions})}"""
    return {"trl.yaml": lines}


def _openrlhf(spec: Spec, given: Given) -> dict[str, str]:
    problems = cannot_carry(spec)
    if problems:
        raise BindingError("\n".join(problems))
    more = ["--dialect", spec.dialect] if spec.dialect else []
    more += [part for name, value in given.constants.items() for part in ("--set", f"{name}={value}")]
    more += ["--seed", str(given.seed)] if given.seed is not None else []
    settings = "".join(f"{shell(part)} " for part in more)
    own = '"rewards", "scores" and "extra_logs", a dict with a tensor for each column:'
    lines = f"""#!/usr/bin/env bash
# {_head(spec, "OpenRLHF 0.11.2")}
# Reward function: {_asks_for(spec, "openrlhf", own)}.
# Usage: ./run_openrlhf.sh [arguments of openrlhf.cli.train_ppo_ray]
set -euo pipefail
here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"
exec python -m rewardspec.adapters.openrlhf --spec "$here/spec.yaml" {settings}-- "$@"
"""
    return {"run_openrlhf.sh": lines} | _reward_file(spec, given, "openrlhf", "reward_func")


TARGETS: Mapping[str, Callable[[Spec, Given], dict[str, str]]] = {"trl": _trl, "verl": _verl, "openrlhf": _openrlhf}


class Occupied(Exception):
    """A folder that has other files of the names to be written."""


def write(files: dict[str, str], folder: Path, force: bool = False) -> list[Path]:
    """The files written into a folder, which is made; scripts can be run.

    Raises Occupied for files with another content, unless `force`; OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {folder / name: text for name, text in files.items()}
    other = [path.name for path, text in paths.items() if path.exists() and path.read_bytes() != text.encode()]
    if other and not force:
        raise Occupied(f"{folder} has {', '.join(other)} with another content")
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8", newline="\n")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return list(paths)
