"""Columns of the data set that the rollout log keeps: OpenRLHF itself takes prompts and labels out of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from rewardspec.adapters.common.rollout_log import kept_of, outer_names, refuse_absent
from rewardspec.logs.rollout_log import RolloutLog

KEPT = "rewardspec_kept"  # the attribute of an Experience of one rollout, and of a PromptDataset

Row = Mapping[str, Any]


class Kept:
    """The values of some columns by prompt and label. Where rows with the same of both differ, a value is None."""

    def __init__(self, data, prompts: Sequence[str], labels: Sequence[Any], log: RolloutLog):
        self.names = list(data.column_names)
        wanted = {name: list(data[name]) for name in outer_names(log) if name in self.names}
        found = kept_of(log, wanted.get)
        self.lacks = [name for name, values in found.items() if values is None]
        there = {name: values for name, values in found.items() if values is not None}
        self.kept = list(there)
        self.rows: dict[bytes, tuple[Any, ...]] = {}  # a data set can have millions
        for place, (prompt, label) in enumerate(zip(prompts, labels, strict=True)):
            row = tuple(values[place] for values in there.values())
            other = self.rows.setdefault(_key(prompt, label), row)
            if other != row:
                same = (a if repr(a) == repr(b) else None for a, b in zip(other, row, strict=True))
                self.rows[_key(prompt, label)] = tuple(same)

    def check(self) -> None:
        """Raise BindingError unless the data set has all of them."""
        refuse_absent(self.lacks, self.names, "the data set has")

    def of(self, prompt: str, label: Any) -> Row:
        row = self.rows.get(_key(prompt, label))
        return {} if row is None else dict(zip(self.kept, row, strict=True))


def _key(prompt: str, label: Any) -> bytes:
    return blake2b(f"{label!r}\n{prompt}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def columns_of(rows: Sequence[Row | None]) -> dict[str, list[Any]]:
    """The columns of rollouts, one value each."""
    names = dict.fromkeys(name for row in rows for name in row or {})
    return {name: [(row or {}).get(name) for row in rows] for name in names}
