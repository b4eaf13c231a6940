"""The advantages of the good rows of a file, step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rewardspec.function import AdvantageFunction, Result
from rewardspec.logs.rows import BadLog
from rewardspec.scoring.moments import InParts, merge
from rewardspec.scoring.packed import Packed, Places, flat_lists, pack, taken
from rewardspec.scoring.table import Table
from rewardspec.spec import Spec, compile

AT_ONCE = 1 << 16  # rows of whole groups that are computed in one call, where a spec reads no other groups
LARGEST_BATCH = 1 << 20  # rows of a batch that are computed in one call; larger ones in parts, where that can be


def advantages(spec: Spec, table: Table, total_steps: int | None) -> Packed:
    """The advantage of every row, NaN for bad ones; a list of them where it has a list's level.

    Rows that the spec refuses are counted as bad. Raises BadLog.

    A step is a batch. State is carried through the steps in their order. It follows from the measured rewards, so a
    resumed run has it.
    """
    fn = compile(spec)
    steps, firsts = np.unique(table.steps[table.good], return_index=True)
    last = total_steps or (int(steps[-1]) if len(steps) and steps[-1] >= 0 else None)
    state = fn.initial_state()
    found = _Found(len(table.good), spec.program.advantage.level.listed)
    refused: dict[int, str] = {}
    first: ValueError | None = None
    for step in steps.tolist() if state is not None else steps[np.argsort(firsts)].tolist():
        rows = np.flatnonzero(table.good & (table.steps == step))
        moment = {"step": None if step < 0 else step, "total_steps": last}
        for chosen in [rows] if "batch" in spec.needs else _whole_groups(rows, table.groups):
            if "batch" in spec.needs and len(rows) > LARGEST_BATCH and _in_parts(spec, table, rows, moment, found):
                continue
            call = _Call(fn, table, {**moment, "state": state})
            try:
                out = call(chosen)
            except ValueError as error:
                here = call.refused(chosen)
                if not here:
                    raise without_advantages(error) from None
                first = first or error
                refused |= here
                chosen = chosen[~np.isin(chosen, list(here))]
                if not len(chosen):
                    continue
                try:
                    out = call(chosen)
                except ValueError as error:
                    raise without_advantages(error) from None
            found.add(chosen, out)
            state = out.state
    if first is not None and len(refused) == table.good.sum():
        raise without_advantages(first)
    table.refuse(refused)
    return found.packed()


def _in_parts(spec: Spec, table: Table, rows: Places, moment: Mapping[str, Any], found: _Found) -> bool:
    """Whether a batch was computed in parts: not one that is needed in one place, or in which rows are refused."""
    try:
        parts = InParts(spec)
        pieces = list(_whole_groups(rows, table.groups))
        known: dict[str, float] = {}

        def columns(piece: Places) -> dict[str, Any]:
            return {name: taken(table.columns[name], piece) for name in spec.columns}

        for stage in range(parts.stages):
            moments = (parts.moments(stage, columns(one), table.groups[one], known, **moment) for one in pieces)
            known |= parts.values(stage, merge(moments))
        for one in pieces:
            found.add(one, parts.advantages(columns(one), table.groups[one], known, **moment))
    except ValueError:  # NotInParts, or RolloutError, which the call with the whole batch explains
        return False
    return True


def _whole_groups(rows: Places, groups: Places) -> Iterator[Places]:
    """These rows in parts of about AT_ONCE, each group in one of them."""
    if len(rows) <= AT_ONCE:
        yield rows
        return
    order = rows[np.argsort(groups[rows], kind="stable")]
    ends = np.append(np.flatnonzero(np.diff(groups[order])) + 1, len(order))
    start = 0
    while start < len(order):
        at = int(np.searchsorted(ends, start + AT_ONCE))
        end = int(ends[min(at, len(ends) - 1)])
        yield order[start:end]
        start = end


class _Call:
    """An advantage function over rows of a table, at one moment."""

    def __init__(self, fn: AdvantageFunction, table: Table, moment: Mapping[str, Any]):
        self.fn, self.table, self.moment = fn, table, moment

    def __call__(self, rows: Places) -> Result:
        columns = self._columns(rows)
        ids, firsts, places = np.unique(self.table.groups[rows], return_index=True, return_inverse=True)
        try:
            appearance: Places = np.argsort(np.argsort(firsts))  # results have groups in the order of appearance
            return self._result(columns, appearance[places])
        except ValueError:
            named = [self.table.ids[i] for i in ids[places].tolist()]
            return self._result(columns, named)  # it raises again, with the group's own id

    def refused(self, rows: Places) -> dict[int, str]:
        """The rows that the spec refuses even alone, with reasons.

        They are looked for by halves, each row a group of its own. So a row that is refused alone, but in no half with
        others, stays: what the batch is there makes it good. One such row among N costs some log2(N) calls.
        """
        return self._refused(rows, self._columns(rows))

    def _refused(self, rows: Places, columns: Mapping[str, Any]) -> dict[int, str]:
        try:
            self._result(columns, np.arange(len(rows)))
            return {}
        except ValueError as error:
            if len(rows) == 1:  # in group 0, so that the patterns find it
                said = re.sub(r" at rollout 0 of group 0\b", "", str(error))
                return {int(rows[0]): re.sub(r" at (\w+) (\d+) of rollout 0 of group 0\b", _counted, said)}
        found: dict[int, str] = {}
        half = len(rows) // 2
        for part in (np.arange(half), np.arange(half, len(rows))):
            found |= self._refused(rows[part], {name: taken(column, part) for name, column in columns.items()})
        return found

    def _columns(self, rows: Places) -> dict[str, Any]:
        return {name: taken(self.table.columns[name], rows) for name in self.fn.spec.columns}

    def _result(self, columns: Mapping[str, Any], groups: Any) -> Result:
        flat, lengths = flat_lists(self.fn.spec, columns)
        return self.fn(flat, groups, **{**self.moment, "lengths": lengths})


def _counted(item: re.Match[str]) -> str:
    """An item of a row, counted from 1 as rows are."""
    return f" at {item[1]} {int(item[2]) + 1}"


def without_advantages(error: ValueError) -> BadLog:
    return BadLog(f"the rewards were measured, but the advantages cannot be computed: {error}")


class _Found:
    """The advantages of N rows, as they are computed."""

    def __init__(self, count: int, listed: bool):
        self.numbers = np.full(count if not listed else 0, np.nan)
        self.lists: list[Any] = [None] * count if listed else []
        self.listed = listed

    def add(self, rows: Places, out: Result) -> None:
        if not self.listed:
            self.numbers[rows] = out.advantages.double().numpy()
            return
        for row, values in zip(rows.tolist(), out.nested(), strict=True):
            self.lists[row] = values

    def packed(self) -> Packed:
        return pack(self.lists, listed=True) if self.listed else self.numbers
