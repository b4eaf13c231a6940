"""Pages of the keys of a spec file and of the names that expressions can read, from the tables of `language/`."""

from __future__ import annotations

from rewardspec.language.declarations import AXES, GIVEN, OF_PLACES
from rewardspec.language.described import KeyUse, uses_of_keys
from rewardspec.manual.page import Kind, Page, listed, paragraphs, sentence
from rewardspec.ops.reductions import ARGUMENTS

_ARE = {**AXES, **GIVEN, **OF_PLACES, **ARGUMENTS}


def _keys() -> list[str]:
    return list(dict.fromkeys(use.name for use in uses_of_keys()))


def _key(name: str) -> Page:
    meanings: dict[tuple[str, str], list[KeyUse]] = {}  # a key of a signal and of a component is one
    uses = [use for use in uses_of_keys() if use.name == name]
    for use in uses:
        meanings.setdefault((use.about, use.value), []).append(use)
    parts = []
    for (about, value), same in meanings.items():
        wheres = " and ".join(use.where for use in same)
        paths = "\n".join(f"    {use.path}" for use in same)
        parts.append(f"{sentence(about)} It is a key {wheres}.\n\n{paths}\n\n{value}")
    return Page("key", name, paragraphs(*parts, uses[0].holds, listed(uses[0].inside)))


def _name(name: str) -> Page:
    return Page("name", name, sentence(_ARE[name]))


KEYS = Kind("key", "what a spec file can say", _keys, _key)
NAMES = Kind("name", "what expressions can read, and arguments of reductions", lambda: [*_ARE], _name)
