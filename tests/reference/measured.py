"""What a call is given: columns after `missing` and `outside`, lengths of lists, state."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from reference.nodes import BATCH, GROUP, ROLLOUT
from reference.numbers import Number

MISSING = None


class RolloutError(Exception):
    """The call raises."""


class Item(NamedTuple):
    """An item of a rollout's list, from 0."""

    rollout: int
    place: int


@dataclass(frozen=True)
class Id:
    value: object


@dataclass
class Batch:
    """columns: N values each, Fractions, symbols, ids or None; of a list, N lists of them. groups: N ids. lengths: of
    each list N, where its columns do not say. state: {name: number} and {name: [[key, number], ...]}.
    """

    columns: dict
    groups: list
    step: int | None = None
    total_steps: int | None = None
    copies: list | None = None
    lengths: dict | None = None
    state: dict | None = None

    def __post_init__(self):
        order = {}
        for i, group in enumerate(self.groups):
            order.setdefault(group, []).append(i)
        self.members = list(order.values())
        self.group_of = {i: g for g, members in enumerate(self.members) for i in members}


def lengths_of(reader, batch):
    """{level: [N]} of every list, by the columns that are read, or by `lengths`. None where nothing says it."""
    found = {}
    for name in reader.lists:
        level = reader.levels[name]
        columns = sorted(reader.claimed_columns & batch.columns.keys())
        read = [c for c in columns if reader.columns[c].level == level]
        said = [[*batch.lengths[name]]] if batch.lengths and name in batch.lengths else []
        for column in read:
            if not all(isinstance(v, list) for v in batch.columns[column]):
                raise RolloutError(f"{column}: no list")
            said.append([len(v) for v in batch.columns[column]])
        if any(one != said[0] for one in said):
            raise RolloutError(f"{name}: lists of unlike lengths")
        found[level] = said[0] if said else None
    return found


def measured_columns(reader, batch, arithmetic, units, read=None):
    """The columns after `missing` and `outside`. units: the relative rounding of each column's type. read: those that
    are held to their declarations. Raises RolloutError.
    """
    found = {}
    lengths_of(reader, batch)
    for name in sorted(reader.claimed_columns & batch.columns.keys() | reader.read_columns):
        column, held = reader.columns[name], read is None or name in read
        if name not in batch.columns:
            raise RolloutError(f"no column {name}")
        given = batch.columns[name]
        values = [v for one in given for v in one] if column.level > ROLLOUT else given
        values = [one_value(column, v, units.get(name, 0), held) for v in values]
        if column.missing == "zero":
            values = [Fraction(0) if v is MISSING else v for v in values]
        of_one = batch.members if column.level == GROUP else [range(len(values))] if column.level == BATCH else []
        if held and any(len({values[i] for i in members}) > 1 for members in of_one):
            raise RolloutError(f"{name} is not equal")
        if held:
            for v in values:
                refuse_large(arithmetic, name, v)
        numbers = iter([arithmetic.leaf(v) if isinstance(v, Fraction) else v for v in values])
        found[name] = [[next(numbers) for _ in one] for one in given] if column.level > ROLLOUT else [*numbers]
    return found


def refuse_large(arithmetic, name, value):
    """A whole number that the type of the computation cannot hold is refused."""
    if isinstance(value, Fraction) and arithmetic.unit and value.denominator == 1 and not arithmetic.holds(value):
        raise RolloutError(f"{name}: {value} is too large")


def one_value(column, value, unit, held):
    """A value of a column, held to its domain."""
    if value is MISSING or (column.ids and value != value):
        return MISSING
    if column.ids:
        return Id(value)
    if column.symbols:
        if value not in column.values:
            raise RolloutError(f"{column.name}: no such name")
        return value
    if isinstance(value, float):
        raise RolloutError(f"{column.name}: infinite")
    ends = [end for end in column.ends if not isinstance(end, float)]
    for declared in column.values or ends:
        if abs(value - declared) <= 2 * unit * abs(declared):
            return declared
    if column.values is not None:
        if column.outside == "clip":
            return min(column.values, key=lambda d: abs(d - value))
        if held:
            raise RolloutError(f"{column.name}: not a declared value")
        return value
    low, high = column.range
    if low <= value <= high:
        return value
    if column.outside == "error" and held:
        raise RolloutError(f"{column.name}: outside")
    return low if value < low else high


# State -------------------------------------------------------------------------------------------


def initial_state(reader):
    """What `state:` is before the first batch."""
    return {name: state.init if state.by is None else [] for name, state in reader.states.items()}


def held_state(reader, batch, arithmetic):
    """{name: Number}, or {name: {key: Number}} where there are keys."""
    if not reader.states:
        return {}
    if batch.state is None:
        raise RolloutError("a call without state")
    if batch.state.keys() != reader.states.keys():
        raise RolloutError("state of another spec")

    def number(state, value):
        if isinstance(value, float) and not math.isfinite(value):
            raise RolloutError(f"{state.name}: infinite")
        exact = Fraction(value)
        if not state.range[0] <= exact <= state.range[1] and abs(exact - state.init) > arithmetic.unit:
            raise RolloutError(f"{state.name}: outside")
        if value == float(state.init):
            return arithmetic.leaf(state.init)
        if isinstance(value, Fraction) or exact.denominator <= 2**20:  # others may stand for a number near by
            return arithmetic.leaf(exact)
        return Number(exact, float(abs(exact)) * arithmetic.unit, arithmetic.id("state", exact))

    return {
        name: number(state, batch.state[name])
        if state.by is None
        else {key_of(key): number(state, value) for key, value in batch.state[name]}
        for name, state in reader.states.items()
    }


def key_of(key):
    """A key as it is looked up: JSON has no tuples."""
    return Id(tuple(key_of(k).value for k in key) if isinstance(key, (list, tuple)) else key)
