"""Parts of the files that `rewardspec compile SPEC --target TRAINER -o DIR` writes, for any trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardspec.adapters.common.lists import listed_columns
from rewardspec.spec import Spec
from rewardspec.text.quoting import comment, python_file


@dataclass(frozen=True)
class Given:
    """The settings of a run in addition to the text of a spec.

    constants: texts for names of `define:`. allowed: the modules whose functions `python:` may import.
    """

    constants: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    allowed: Sequence[str] = ()


def head(spec: Spec, what: str) -> str:
    return comment(f"{what} with the advantages of fingerprint {spec.fingerprint}: {spec.name}")


def others(spec: Spec, filled: Sequence[str]) -> list[str]:
    """The columns that neither the trainer nor the spec itself measures."""
    return [name for name in spec.columns if name not in filled and name not in spec.uses]


def reward_file(spec: Spec, given: Given, filled: Sequence[str], target: str, name: str) -> dict[str, str]:
    """`reward.py`, the module with a trainer's reward function; nothing for a spec without reward functions."""
    if not spec.uses:
        return {}
    left = ", ".join(others(spec, filled))
    also = ", or to `extra_info` of the data set" if target == "verl" else ""
    note = [f"It does not measure {left}: add these to the values that it returns{also}."] if left else []
    constants = f", constants={dict(given.constants)!r}" if given.constants else ""
    needed = any(use.python is not None for use in spec.uses.values())
    permission = f", allow_python={given.allowed!r}" if needed else ""
    if needed and not given.allowed:
        note.append("The spec names user functions: list the modules that it may import in allow_python.")
    body = f"""from pathlib import Path

import rewardspec
from rewardspec.rewards import for_{target}

{name} = for_{target}(rewardspec.load(Path(__file__).with_name("spec.yaml"){constants}){permission})
"""
    return {"reward.py": python_file([head(spec, "Reward functions"), *note], body)}


def asks_for(spec: Spec, filled: Sequence[str], own: str) -> str:
    """The values that the reward function of a trainer must return, in words. own: those that the trainer needs."""
    if spec.uses:
        left = ", ".join(others(spec, filled))
        return "the one next to this" + (f", with {left} added" if left else "")
    lists = listed_columns(spec)
    names = ", ".join(f"{name} (a list for each rollout)" * (name in lists) or name for name in others(spec, filled))
    return f"returns {own}" + (f" and {names}" if names else "")


class Occupied(Exception):
    """The folder has different files with the same names."""


def write(files: dict[str, str], folder: Path, force: bool = False) -> list[Path]:
    """Write files into a folder, created if needed, and return their paths; scripts are made executable.

    Raises Occupied if a file exists with other content, unless `force`; OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {folder / name: text for name, text in files.items()}
    other = [path.name for path, text in paths.items() if path.exists() and path.read_bytes() != text.encode()]
    if other and not force:
        raise Occupied(f"{folder} has {', '.join(other)} with other content")
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8", newline="\n")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return list(paths)
