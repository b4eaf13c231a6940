"""What can be written at a place of a spec, by the path of keys that leads to it: for editors.

slot_at(("components", "length", "when")).role  # "expression"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rewardspec.language.keys import SPEC, Choice, Free, Kind, Named, One, Pair, Part, Parts, Reason, Several

Role = Literal[
    "keys",  # a mapping with the keys of `keys`
    "names",  # a mapping with names that the user chooses
    "items",  # a list
    "options",  # the options of a reward function
    "expression",
    "word",  # one of `words`
    "reward",  # the name of a reward function, with options in parentheses
    "python",
    "key column",  # the signal under `by:` of a state
    "code",  # a mapping of the codes of findings
    "text",
]


@dataclass(frozen=True)
class Slot:
    """What a place takes.

    role: as a mapping, or as a single value. about: the description of its key. keys: key to description, for the role
    `keys`; required: those that it needs. words: what the value can be; default: what it is if the key is absent;
    or_list: the name of a list, too. short: the role of a single value in place of a mapping.
    """

    role: Role
    about: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    default: str | None = None
    or_list: bool = False
    short: Role | None = None


def slot_at(path: tuple[str, ...]) -> Slot | None:
    """What the place at the end of a path takes; `-` in it is an item of a list. None if no key leads there."""
    found: Kind = SPEC
    about = SPEC.about
    for i, name in enumerate(path):
        match found:
            case Part(keys=keys) if name in keys:
                about, found = keys[name].about, keys[name].kind
                if name in _OWN:
                    return Slot(_OWN[name], about) if path[i + 1 :] == () else _inside(_OWN[name], path[i + 1 :], about)
            case Named(each=each):
                about, found = (each.about if isinstance(each, Part) else about), each
            case Parts(each=each) if name == "-":
                about, found = each.about, each
            case Several() | Pair() if name == "-":
                role: Role = "expression" if isinstance(found, Pair) and found.is_expression else "text"
                return Slot(role, about) if path[i + 1 :] == () else None
            case _:
                return None
    return _slot(found, about)


_OWN: Mapping[str, Role] = {
    "use": "reward",
    "python": "python",
    "by": "key column",
    "allow": "code",
    "with": "options",
}


def _inside(role: Role, path: tuple[str, ...], about: str) -> Slot | None:
    """What is inside `allow:` and `with:`."""
    if role == "options" and path == ("only_when",):
        return Slot("expression", "a condition on the rollout's own values: the function runs only where it is true")
    return Slot("text", about) if role == "code" else None


def _slot(kind: Kind, about: str) -> Slot:
    match kind:
        case Part(keys=keys, short=short):
            required = frozenset(name for name, key in keys.items() if key.required)
            if kind is SPEC:
                required = frozenset({"rewardspec", "components", "advantage"})
            role: Role | None = None if short is None else "expression"
            return Slot("keys", about, {name: key.about for name, key in keys.items()}, required, short=role)
        case Named():
            return Slot("names", about)
        case Parts() | Several() | Pair():
            return Slot("items", about)
        case Free():
            return Slot("options", about)
        case Choice(words=words, default=default, or_list=or_list):
            return Slot("word", about, words=words, default=default, or_list=or_list)
        case One() if kind.is_expression:
            return Slot("expression", about)
        case One() | Reason():
            return Slot("text", about)
