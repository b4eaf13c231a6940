"""What reward functions said of rows, kept from run to run: a changed component asks itself alone again.

A value is kept under a hash of what the function reads of the row, the function's name, its options and its version.
So renaming a component, adding a column, or changing the advantage asks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from rewardspec.language.declarations import Use
from rewardspec.rewards import kept
from rewardspec.rewards.reward import BadReference
from rewardspec.scoring.versions import endpoint, of_function, of_ours

WHAT = "what reward functions said"


class Store(Protocol):
    """Where values are kept, as texts by key. version: what they were made by; no key is in two versions."""

    def recall(self, version: str, keys: Iterable[str]) -> dict[str, str] | None:
        """The kept texts; None if the store cannot be used."""

    def keep(self, version: str, texts: Mapping[str, str]) -> bool:
        """Keep texts. Whether the store can be used."""


@dataclass(frozen=True)
class InFile:
    """Values kept in an SQLite file."""

    path: Path

    def recall(self, version: str, keys: Iterable[str]) -> dict[str, str] | None:
        return kept.recall(self.path, WHAT, keys)

    def keep(self, version: str, texts: Mapping[str, str]) -> bool:
        return kept.keep(self.path, WHAT, texts)


@dataclass
class ComponentCache:
    """It keeps what the user's own functions say, and ours that start processes or ask a model.

    Ours that only compute take less time than looking their values up.

    only_failed: ask again where there was no answer (None, also of an item).
    asked, recalled: how many values were asked for, and how many were kept.
    """

    store: Store
    only_failed: bool = False
    asked: int = 0
    recalled: int = 0
    _usable: bool = True  # a store that cannot be used is warned of once
    _versions: dict[str, str | None] = field(default_factory=dict)

    def measured(
        self,
        column: str,
        use: Use,
        own: Callable[..., Any] | None,
        given: Mapping[int, Any],
        measure: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> Sequence[Any]:
        """The values of a function for these rows: those that are kept, and `measure` of the others.

        given: what the function reads of each row. own: the user's function, if it is one.
        """
        if column not in self._versions:
            self._versions[column] = version_of(use, own)
        version = self._versions[column]
        if version is None or not self._usable:
            return measure(list(given.values()))
        keys = {i: _key(version, read) for i, read in given.items()}
        texts = self.store.recall(version, [key for key in keys.values() if key is not None])
        if texts is None:
            self._usable = False
            return measure(list(given.values()))
        known = {i: _value(texts[key], use.of is not None) for i, key in keys.items() if key in texts}
        known = {i: found[0] for i, found in known.items() if found and not (self.only_failed and _failed(found[0]))}
        left = [i for i in given if i not in known]
        try:
            values = list(measure([given[i] for i in left]))
        except BadReference as error:  # it names rows by their places
            places = {i: k for k, i in enumerate(given)}
            raise BadReference(str(error), {places[left[k]]: reason for k, reason in error.rows.items()}) from None
        new = {key: text for i, value in zip(left, values, strict=True) if (key := keys[i]) and (text := _text(value))}
        self._usable = self.store.keep(version, new)
        self.asked += len(left)
        self.recalled += len(known)
        found = known | dict(zip(left, values, strict=True))
        return [found[i] for i in given]


def version_of(use: Use, own: Callable[..., Any] | None) -> str | None:
    """All that a function's value depends on, beside the row; None for a function whose values are not kept."""
    if own is not None:
        return f"{use.python or use.reward} {of_function(own)}"
    if use.reward is None or not use.reward.many:
        return None
    return f"{use.reward.name} {sorted(use.options.items())!r} {use.of is not None} {of_ours()}{endpoint(use)}"


def _key(version: str, read: Any) -> str | None:
    """None for a row with something that has no lasting text."""
    try:
        text = json.dumps([version, read], sort_keys=True, default=_lasting)
    except (TypeError, ValueError):
        return None
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _lasting(value: object) -> object:
    if hasattr(value, "tolist"):  # an array, whose text has eight digits of a number
        return [type(value).__name__, str(getattr(value, "dtype", "")), value.tolist()]
    text = repr(value)
    if " at 0x" in text or "..." in text:
        raise TypeError("its text has an address, or is not all of it")
    return f"{type(value).__name__} {text}"


def _text(value: Any) -> str:
    """A value as JSON; empty for one that JSON does not hold, as an array."""
    try:
        return json.dumps(value if value is None else float(value) if not _listed(value) else [*map(_number, value)])
    except (TypeError, ValueError, OverflowError):
        return ""


def _listed(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _value(text: str, lists: bool) -> tuple[Any] | None:
    """A kept value, in a tuple because it can be None; None for a text that is none. lists: whether it is a list."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if value is not None and isinstance(value, list) != lists:
        return None
    items = value if lists and value is not None else [value]
    return (value,) if all(item is None or isinstance(item, float) for item in items) else None


def _failed(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, list) and any(map(_failed, value)))
