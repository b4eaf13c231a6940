"""All operators, and sets of them, derived from their declarations."""

from __future__ import annotations

from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.ops.operator import OPERATORS, SCANS
from rewardspec.ops.reductions import REDUCTIONS

__all__ = [
    "ACROSS_ROLLOUTS",
    "COMPARISONS",
    "ELEMENTWISE",
    "FUNCTIONS",
    "GROUP_SPREADS",
    "LOGIC",
    "OPERATORS",
    "REDUCTIONS",
    "SCANS",
    "SPREADS",
]

COMPARISONS = frozenset(name for name, op in ELEMENTWISE.items() if op.opposite)
LOGIC = frozenset(name for name, op in ELEMENTWISE.items() if op.conditions)  # of conditions: and, or, not
SPREADS = frozenset(name for name, op in REDUCTIONS.items() if op.parameter == "ddof")  # measures of spread
GROUP_SPREADS = frozenset(name for name in SPREADS if not REDUCTIONS[name].keeps_level)  # one value for a group
ACROSS_ROLLOUTS = frozenset({*REDUCTIONS, "copies"})  # the value at a rollout depends on other rollouts
