"""Where a declaration stands in its file, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rewardspec.text.source import Span


@dataclass(frozen=True, eq=False)
class Place:
    """The text of one declaration: its name, what follows the name, and the places of the keys in that.

    `components: {length: {range: [0, 9], weight: 2}}` has `place.at("components", "length", "weight").value.text`
    equal to `2`. A key stands here if it was written, whether or not its value is right.
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
        """The place that the keys lead to; None where one of them was not written."""
        found: Place | None = self
        for key in keys:
            found = None if found is None else found.keys.get(key)
        return found

    def of(self, key: str) -> Span:
        """The value of a key; the declaration's name where the key was not written."""
        return self.keys[key].value if key in self.keys else self.name
