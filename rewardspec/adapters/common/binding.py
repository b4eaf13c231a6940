"""A spec's columns matched by name with the rewards and columns of a trainer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike

from rewardspec.spec import Spec, load, loads
from rewardspec.text.diagnostics import did_you_mean
from rewardspec.text.shown import inert, printed, shown


class BindingError(ValueError):
    """Settings or columns of a trainer contradict the spec. The message has one line for each.

    It is safe to print (`rewardspec.text.shown`), whatever names of others it contains.
    """

    def __init__(self, message: str):
        super().__init__(printed(message))


def listed(names: Iterable[str]) -> str:
    """Names that others chose, safe to print in a message."""
    return inert(", ".join(f"`{shown(name)}`" for name in names)) or "nothing"


def read_spec(spec: Spec | str | PathLike, constants: Mapping[str, object] = {}, dialect: str | None = None) -> Spec:
    """The spec for a `Spec`, the path of a file, or a text (anything with a line break).

    Raises SpecError with all errors, OSError for a file that cannot be read, BindingError for constants of a spec that
    has been read already, ValueError for an unknown dialect.
    """
    if isinstance(spec, Spec) and constants:
        raise BindingError(f"{spec.name} has been read already: pass `constants` to `rewardspec.load`, or a path here")
    if not isinstance(spec, Spec):
        if isinstance(spec, str) and "\n" in spec:
            spec = loads(spec, constants=constants)
        else:
            spec = load(spec, constants=constants)
    return spec if dialect is None else spec.under(dialect)


def same_meaning(own: Spec, scored: Spec) -> bool:
    """Whether a run's spec (without its dialect) and the spec of a reward function compute the same."""
    return (own if scored.dialect is None else own.under(scored.dialect)).fingerprint == scored.fingerprint


def as_name(name: str) -> str:
    """A valid name for a spec from any text, such as the name of a model: `_` replaces other characters."""
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def check_rewards(spec: Spec, rewards: Iterable[str], others: Iterable[str], what: str) -> None:
    """Raise BindingError unless the spec's columns are, by name, among rewards and other columns.

    rewards: names of the user's rewards; the spec must read each of them. others: names that the trainer or the data
    set has; the spec need not read them. what: the user's word for a reward, such as "reward function".
    """
    rewards, others = list(rewards), set(others)
    problems = []
    for name, count in Counter(rewards).items():
        if count > 1:
            problems.append(f"{count} {what}s are called `{shown(name)}`: the spec cannot distinguish them")
        if name not in spec.columns:
            near = did_you_mean(name, spec.columns, f"it reads {', '.join(f'`{c}`' for c in spec.columns)}")
            if not name.isidentifier():
                near = f"{near}; a spec can call it `{as_name(name)}`"
            known = "declares but never uses" if name in spec.program.columns else "does not read"
            problems.append(f"{what} `{shown(name)}`: {spec.name} {known} this name; {near}")
    for name in spec.columns:
        if name not in rewards and name not in others:
            near = did_you_mean(name, [n for n in rewards if n not in spec.columns] or sorted(others))
            near = near or f"pass a {what} of that name, or add a column"
            problems.append(f"nothing measures `{name}`, which {spec.name} reads; {near}")
    if problems:
        raise BindingError("\n".join(problems))
