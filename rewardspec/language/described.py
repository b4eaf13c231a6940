"""The keys of a spec file in words: where each may stand, what it means, and what may stand under it."""

from __future__ import annotations

from dataclasses import dataclass

from rewardspec.language.keys import (
    COMPONENT,
    LIST,
    NUMERICS,
    REWARD_TOKENS,
    SIGNAL,
    SPEC,
    STAGE,
    STATE,
    Choice,
    Free,
    Key,
    Named,
    One,
    Pair,
    Part,
    Parts,
    Reason,
    Several,
)

# Where each part stands in a file, in the order of the file.
_PLACES: dict[str, tuple[Part, str]] = {
    "at the top of a spec": (SPEC, ""),
    "in a list": (LIST, "lists: NAME: "),
    "in a signal": (SIGNAL, "signals: NAME: "),
    "in a component": (COMPONENT, "components: NAME: "),
    "in a stage of a component": (STAGE, "components: NAME: stages: - "),
    "in a state": (STATE, "state: NAME: "),
    "in `numerics:`": (NUMERICS, "numerics: "),
    "in `condition:`": (REWARD_TOKENS, "condition: "),
}


@dataclass(frozen=True)
class KeyUse:
    """A key in one part of a file. where: in words. path: as it is written. inside: the keys under it, name to meaning.

    value: a sentence about what may stand under it. holds: what a part under it is; empty if it holds none.
    """

    name: str
    where: str
    path: str
    about: str
    value: str
    holds: str
    inside: dict[str, str]


def uses_of_keys() -> list[KeyUse]:
    """Every key in every part, in the order of a file."""
    found = []
    for where, (part, path) in _PLACES.items():
        for name, key in part.keys.items():
            held = key.kind.each if isinstance(key.kind, Named | Parts) else key.kind
            inside = {one: of.about for one, of in held.keys.items()} if isinstance(held, Part) else {}
            holds = held.about if isinstance(held, Part) else ""
            found.append(KeyUse(name, where, f"{path}{name}: ...", key.about, _value(key), holds, inside))
    return found


def _value(key: Key) -> str:
    """What may stand under a key."""
    required = " It is required." if key.required else ""
    match key.kind:
        case Choice(words=words, default=default, or_list=or_list):
            listed = [f"`{word}`" for word in words] + ["the name of a list"] * or_list
            by_default = f"; `{default}` if it is not given" if default else ""
            return f"Its value is {' or '.join(listed)}{by_default}.{required}"
        case Several():
            return f"Its value is a list.{required}"
        case Pair():
            return f"Its value is a list of two: lowest and highest.{required}"
        case Named():
            return f"Under it are names of your own.{required}"
        case Free():
            return f"Under it are options by name.{required}"
        case Parts():
            return f"Its value is a list of mappings, or of expressions.{required}"
        case Part():
            return f"Under it are keys of its own.{required}"
        case Reason():
            return f"Its value is a reason, in words.{required}"
        case One(schema=schema):
            return f"Its value is {schema.get('description', 'one text or number')}.{required}"
