"""The reward functions that `use:` can name, with their options and the values of those."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rewardspec.editor.names import written
from rewardspec.language.outline import Entry
from rewardspec.rewards.catalogue import find_reward
from rewardspec.rewards.reward import Reward

_NAMED = re.compile(r"\s*([A-Za-z_]\w*\.[A-Za-z_]\w*)")
FIXED = ("completion", "tokens")  # inputs that every rollout has


@dataclass(frozen=True)
class Option:
    """An option of a reward function. values: what it can be, if those are words. default: None if it is required."""

    name: str
    about: str
    values: tuple[str, ...] = ()
    default: str | None = None


def reward_at(text: str, entry: Entry | None) -> Reward | None:
    """The reward function that an entry `use:` names; None if there is none."""
    piece = None if entry is None else written(text, entry)
    match = None if piece is None else _NAMED.match(piece[0])
    return None if match is None else find_reward(match[1])


def options(reward: Reward) -> Iterator[Option]:
    """The options of a reward function, the columns that it reads, and `only_when`."""
    fields = reward.model.model_fields
    for name, default in reward.defaults.items():
        required = default is inspect.Parameter.empty
        text = None if required else _written(default)
        values = tuple(dict.fromkeys(_words(fields[name].annotation)))
        about = f"one of {', '.join(f'`{value}`' for value in values)}" if values else ""
        told = "required" if required else f"default `{text}`"
        yield Option(name, f"{about}; {told}" if about else told, values, text)
    for name in reward.inputs:
        if name not in FIXED:
            yield Option(name, f"the column of the data set that has `{name}`", default=name)
    if reward.expression is None:
        yield Option("only_when", "a condition: the function runs only where it is true")


def _words(annotation: Any) -> Iterator[str]:
    """The values of an option whose type names them."""
    origin = get_origin(annotation)
    if annotation is bool:
        yield from ("true", "false")
    elif origin is Literal:
        yield from map(str, get_args(annotation))
    elif origin is Annotated:
        yield from _words(get_args(annotation)[0])
    elif origin is Union or str(origin) == "<class 'types.UnionType'>":
        for one in get_args(annotation):
            yield from (("null",) if one is type(None) else _words(one))


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return str(value)
