"""The place of a declaration in its file, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rewardspec.text.source import Span


@dataclass(frozen=True, eq=False)
class Place:
    """The places of one declaration: its name, its value, and the keys inside the value.

    `components: {length: {range: [0, 9], weight: 2}}` has `place.at("components", "length", "weight").value.text`
    equal to `2`. Every key that was written is here, also one with a wrong value.
    """

    name: Span
    value: Span
    keys: Mapping[str, Place] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def __getitem__(self, key: str) -> Place:
        return self.keys[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def at(self, *keys: str) -> Place | None:
        """The place at the end of a path of keys; None if one of them was not written."""
        found: Place | None = self
        for key in keys:
            found = None if found is None else found.keys.get(key)
        return found

    def of(self, key: str) -> Span:
        """The value of a key; the declaration's name if the key was not written."""
        return self.keys[key].value if key in self.keys else self.name
