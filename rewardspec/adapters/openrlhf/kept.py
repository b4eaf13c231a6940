"""Columns of the data set that the rollout log keeps: OpenRLHF itself takes prompts and labels out of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        for place, at in enumerate(zip(prompts, map(repr, labels), strict=True)):
            row = {name: values[place] for name, values in there.items()}
            other = self.rows.setdefault(at, row)
            for name in row:
                if repr(other[name]) != repr(row[name]):
                    other[name] = None

    def check(self) -> None:
        """Raise BindingError unless the data set has all of them."""
        refuse_absent(self.lacks, self.names, "the data set has")

    def of(self, prompt: str, label: Any) -> Row:
        return self.rows.get((prompt, repr(label)), {})


def columns_of(rows: Sequence[Row | None]) -> dict[str, list[Any]]:
    """The columns of rollouts, one value each."""
    names = dict.fromkeys(name for row in rows for name in row or {})
    return {name: [(row or {}).get(name) for row in rows] for name in names}
