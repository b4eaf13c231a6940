"""The files for a trainer's configuration that `rewardspec compile SPEC --target TRAINER -o DIR` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rewardspec.adapters.common.embedding import Given, Occupied, write
from rewardspec.adapters.openrlhf.embedding import files as for_openrlhf
from rewardspec.adapters.trl.embedding import files as for_trl
from rewardspec.adapters.verl.embedding import files as for_verl
from rewardspec.scoring.permission import Allowed, read_allowed
from rewardspec.spec import Spec

__all__ = ["TARGETS", "Occupied", "embedded", "write"]

TARGETS: Mapping[str, Callable[[Spec, Given], dict[str, str]]] = {
    "trl": for_trl,
    "verl": for_verl,
    "openrlhf": for_openrlhf,
}


def embedded(
    spec: Spec,
    target: str,
    allow_python: Allowed = False,
    constants: Mapping[str, object] = {},
    seed: int | None = None,
) -> dict[str, str]:
    """Texts by file name: the spec unchanged, the stand-alone module, and the configuration of `target`.

    allow_python: the user functions (`python:`) that the files allow; True for all. constants: those that the spec was
    read with; the configuration passes them on, and the seed, too.
    Raises BindingError for a spec, a constant or a seed that the trainer cannot carry.
    """
    names = read_allowed(allow_python)
    own = sorted({use.python for use in spec.uses.values() if use.python is not None})
    texts = {name: str(value) for name, value in constants.items()}
    given = Given(texts, seed, own if names is True else list(names or ()))
    return {"spec.yaml": spec.source.text, "advantage.py": spec.python} | TARGETS[target](spec, given)
