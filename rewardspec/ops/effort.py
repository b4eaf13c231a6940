"""A count of the work of exact arithmetic, which bounds the time of `simulate`, `verify` and the findings.

A unit is one to three microseconds. Values cost by their size, normal forms and enclosures by their length. A search
sets an `Allowance`, checks it between steps, and reports what it did not try.
"""

from __future__ import annotations

import threading
from fractions import Fraction

MOST_EFFORT = 2_000_000  # for one question about a spec


class _Effort(threading.local):
    spent = 0


_effort = _Effort()


def spend(units: int) -> None:
    _effort.spent += units


def spent() -> int:
    """Units that this thread has spent so far."""
    return _effort.spent


class Allowance:
    """A budget of units from now on; `MOST_EFFORT` by default."""

    def __init__(self, most: int | None = None):
        self.until = spent() + (MOST_EFFORT if most is None else most)

    @property
    def left(self) -> int:
        return self.until - spent()

    def part(self) -> Allowance:
        """An allowance of two thirds of the rest, which leaves a third for later steps."""
        return Allowance(2 * max(self.left, 0) // 3)

    @property
    def is_spent(self) -> bool:
        return spent() > self.until


def weight(value: object) -> int:
    """About the units that one use of an exact value costs."""
    if isinstance(value, Fraction):
        return 1 + (value.numerator.bit_length() + value.denominator.bit_length()) // 200
    return 1 + 2 * len(getattr(value, "terms", ()))
