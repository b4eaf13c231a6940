"""What exact arithmetic has cost, counted: so that no question takes longer than was asked for.

A unit is one to three microseconds. Values are weighed by their size where they are found, normal forms and enclosures
where they are made. Whoever asks sets an `Allowance`, looks at it between two steps, and says what was left out.
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
    """So many units from now on; None for as many as `MOST_EFFORT`."""

    def __init__(self, most: int | None = None):
        self.until = spent() + (MOST_EFFORT if most is None else most)

    @property
    def left(self) -> int:
        return self.until - spent()

    def part(self) -> Allowance:
        """Two thirds of what is left, so that something stays for what comes after."""
        return Allowance(2 * max(self.left, 0) // 3)

    @property
    def is_spent(self) -> bool:
        return spent() > self.until


def weight(value: object) -> int:
    """What it costs about to look at an exact value once."""
    if isinstance(value, Fraction):
        return 1 + (value.numerator.bit_length() + value.denominator.bit_length()) // 200
    return 1 + 2 * len(getattr(value, "terms", ()))
