"""Levels and domains: what is known about a value before any data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isinf, nextafter
from typing import ClassVar

from rewardspec.text.numbers import LARGEST, format_number

MOST_BITS = 512  # of a bound's numerator or denominator
MOST_VALUES = 256  # a larger finite set is kept as an interval

Bound = Fraction | float  # a float only for an infinite bound


class Level:
    """What has one value: the batch, each group, each rollout, or each item of a list (`Level("turn")`).

    Finer levels are greater. Two lists are equally fine and cannot be compared. There is one object for each name.
    """

    BATCH: ClassVar[Level]
    GROUP: ClassVar[Level]
    ROLLOUT: ClassVar[Level]

    _known: ClassVar[dict[str, Level]] = {}
    __slots__ = ("name", "rank")
    name: str
    rank: int

    def __new__(cls, name: str) -> Level:
        found = cls._known.get(name)
        if found is None:
            found = cls._known[name] = super().__new__(cls)
            found.name, found.rank = name, min(len(cls._known) - 1, 3)
        return found

    @property
    def listed(self) -> bool:
        """Whether it is the level of a list's items."""
        return self.rank == 3

    def __lt__(self, other: Level) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Level) -> bool:
        return self is other or self.rank < other.rank

    def __gt__(self, other: Level) -> bool:
        return self.rank > other.rank

    def __ge__(self, other: Level) -> bool:
        return self is other or self.rank > other.rank

    def __reduce__(self) -> tuple[type[Level], tuple[str]]:
        return Level, (self.name,)

    def __repr__(self) -> str:
        return f"Level({self.name!r})"

    def __str__(self) -> str:
        return self.name


Level.BATCH, Level.GROUP, Level.ROLLOUT = Level("batch"), Level("group"), Level("rollout")


class TwoLists(Exception):
    """Values of two lists meet in one operator. levels: of the two."""

    def __init__(self, *levels: Level):
        super().__init__(*levels)
        self.levels = levels


def finest(levels: Iterable[Level]) -> Level:
    """The finest of some levels. Raises TwoLists where two lists are among them."""
    found = Level.BATCH
    for level in levels:
        if level.listed and found.listed and level is not found:
            raise TwoLists(found, level)
        if level > found:
            found = level
    return found


@dataclass(frozen=True)
class Domain:
    """The values that a node can have, `{0, 1}` or `[0, inf)`, and whether it can be missing.

    values: a finite set, sorted; None for an interval. `lo` and `hi` bound both. The domain of `missing` is the empty
    set, `values=()`. symbols: names in place of numbers; `values` are then their indices. ids: any values that can be
    told apart; the numbers that stand for them mean nothing.
    """

    lo: Bound = -inf
    hi: Bound = inf
    lo_open: bool = False
    hi_open: bool = False
    values: tuple[Fraction, ...] | None = None
    missing: bool = False
    symbols: tuple[str, ...] | None = None
    ids: bool = False

    @property
    def constant(self) -> Fraction | None:
        """The only possible value, if there is just one and it is never missing; else None."""
        if self.values is not None and len(self.values) == 1 and not self.missing:
            return self.values[0]
        return None

    @property
    def condition(self) -> bool:
        """Whether every value is 0 or 1."""
        return self.values is not None and set(self.values) <= {0, 1} and not self.symbols

    @property
    def nominal(self) -> bool:
        """Whether its values are names or ids: equal or not, without order and arithmetic."""
        return self.symbols is not None or self.ids

    @property
    def bounded(self) -> bool:
        return self.lo > -inf and self.hi < inf

    def __contains__(self, value: Bound) -> bool:
        if self.values is not None:
            return value in self.values
        above = self.lo < value or (self.lo == value and not self.lo_open)
        return above and (value < self.hi or (value == self.hi and not self.hi_open))

    def present(self) -> Domain:
        return replace(self, missing=False)

    def or_missing(self, missing: bool = True) -> Domain:
        return replace(self, missing=self.missing or missing)

    def union(self, other: Domain) -> Domain:
        missing = self.missing or other.missing
        if self.values == ():
            return replace(other, missing=missing)
        if other.values == ():
            return replace(self, missing=missing)
        if self.values is not None and other.values is not None:
            return finite({*self.values, *other.values}, missing)
        lo, hi = min(self.lo, other.lo), max(self.hi, other.hi)
        return interval(
            lo,
            hi,
            lo not in self and lo not in other,
            hi not in self and hi not in other,
            missing,
        )

    def __str__(self) -> str:
        if self.ids:
            text = "any id"
        elif self.symbols is not None:
            text = "{" + ", ".join(self.symbols) + "}"
        elif self.values is not None:
            shown = [_bound(v) for v in self.values[:8]]
            if len(self.values) > 8:
                shown = [*shown[:6], "...", _bound(self.values[-1])]
            text = "{" + ", ".join(shown) + "}"
        else:
            text = "(" if self.lo_open or self.lo == -inf else "["
            text += f"{_bound(self.lo)}, {_bound(self.hi)}"
            text += ")" if self.hi_open or self.hi == inf else "]"
        return text + (" or missing" if self.missing else "")


def _bound(value: Bound) -> str:
    """A bound as text; long ones to six digits."""
    if isinstance(value, float):
        return "inf" if value > 0 else "-inf"
    text = format_number(value)
    return text if len(text) <= 14 else f"{float(value):.6g}"


def finite(values: Iterable[Fraction], missing: bool = False) -> Domain:
    """The set of `values`; their interval where they are more than `MOST_VALUES` or too large."""
    ordered = tuple(sorted({Fraction(v) for v in values}))
    if not ordered:
        return Domain(Fraction(0), Fraction(0), values=(), missing=missing)
    ends = _outward(ordered[0], -inf), _outward(ordered[-1], inf)
    if len(ordered) > MOST_VALUES or ends != (ordered[0], ordered[-1]):
        return Domain(*ends, missing=missing)
    return Domain(ordered[0], ordered[-1], values=ordered, missing=missing)


def _outward(bound: Bound, towards: float) -> Bound:
    """`bound`; where it is beyond floats or has too many bits, a simpler one further out."""
    if isinstance(bound, float):
        return bound
    if abs(bound) > LARGEST:
        if (bound > 0) == (towards > 0):
            return towards
        return LARGEST if bound > 0 else -LARGEST
    if max(bound.numerator.bit_length(), bound.denominator.bit_length()) <= MOST_BITS:
        return bound
    near = nextafter(nextafter(float(bound), towards), towards)
    return near if isinf(near) else Fraction(near)


def interval(lo: Bound, hi: Bound, lo_open: bool = False, hi_open: bool = False, missing: bool = False) -> Domain:
    lo, hi = _outward(lo, -inf), _outward(hi, inf)
    if lo == hi and not isinstance(lo, float):
        return finite([lo], missing)
    return Domain(lo, hi, lo_open and lo > -inf, hi_open and hi < inf, missing=missing)


def symbolic(names: tuple[str, ...], missing: bool = False) -> Domain:
    count = len(names)
    indices = tuple(Fraction(i) for i in range(count))
    return Domain(Fraction(0), Fraction(count - 1), values=indices, missing=missing, symbols=names)


ANY = Domain()
ID = Domain(Fraction(0), ids=True)
CONDITION = finite([Fraction(0), Fraction(1)])
NOTHING = finite([], missing=True)
