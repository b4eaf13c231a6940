"""A spec and what a trainer measures, brought together by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike

from rewardspec.spec import Spec, load, loads
from rewardspec.text.diagnostics import did_you_mean
from rewardspec.text.shown import inert, printed, shown


class BindingError(ValueError):
    """A trainer's setting or columns that do not go with the spec. The message has a line for each.

    Names in it are of others: it can be printed anywhere (`rewardspec.text.shown`).
    """

    def __init__(self, message: str):
        super().__init__(printed(message))


def listed(names: Iterable[str]) -> str:
    """Names of others, in a message."""
    return inert(", ".join(f"`{shown(name)}`" for name in names)) or "nothing"


def read_spec(spec: Spec | str | PathLike, constants: Mapping[str, object] = {}, dialect: str | None = None) -> Spec:
    """A spec given as such, as the path of a file, or as the text of one (anything with a line break).

    Raises SpecError with everything that is wrong with it, OSError for a file that cannot be read, BindingError for
    constants of a spec that has been read, ValueError for a dialect that is not known.
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
    """Whether a run's spec, without a dialect, and the one that a reward function was made of say the same."""
    return (own if scored.dialect is None else own.under(scored.dialect)).fingerprint == scored.fingerprint


def as_name(name: str) -> str:
    """A name that a spec can use for one that it cannot, such as that of a model: `_` for what it has not."""
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def check_rewards(spec: Spec, rewards: Iterable[str], others: Iterable[str], what: str) -> None:
    """Raise BindingError unless rewards and other columns are, by name, what the spec reads.

    rewards: names of what the user scores rollouts with; each has to be read by the spec. others: names
    that the trainer or the data set has; they can be left unread. what: what the user calls a reward,
    such as "reward function".
    """
    rewards, others = list(rewards), set(others)
    problems = []
    for name, count in Counter(rewards).items():
        if count > 1:
            problems.append(f"{count} {what}s are called `{shown(name)}`: the spec cannot tell them apart")
        if name not in spec.columns:
            near = did_you_mean(name, spec.columns, f"it reads {', '.join(f'`{c}`' for c in spec.columns)}")
            if not name.isidentifier():
                near = f"{near}; a spec can call it `{as_name(name)}`"
            known = "declares but never uses" if name in spec.program.columns else "does not read"
            problems.append(f"{what} `{shown(name)}`: {spec.name} {known} this name; {near}")
    for name in spec.columns:
        if name not in rewards and name not in others:
            near = did_you_mean(name, [n for n in rewards if n not in spec.columns] or sorted(others))
            near = near or f"pass a {what} of that name, or have a column"
            problems.append(f"nothing measures `{name}`, which {spec.name} reads; {near}")
    if problems:
        raise BindingError("\n".join(problems))
