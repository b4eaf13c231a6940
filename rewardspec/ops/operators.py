"""All operators, and the sets they fall into: stated by what the declarations say, here and nowhere else."""

from __future__ import annotations

from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.ops.operator import OPERATORS
from rewardspec.ops.reductions import REDUCTIONS

__all__ = ["COMPARISONS", "ELEMENTWISE", "FUNCTIONS", "LOGIC", "OPERATORS", "REDUCTIONS", "SPREADS"]

COMPARISONS = frozenset(name for name, op in ELEMENTWISE.items() if op.opposite)
LOGIC = frozenset(name for name, op in ELEMENTWISE.items() if op.conditions)  # of conditions: and, or, not
SPREADS = frozenset(name for name, op in REDUCTIONS.items() if op.parameter == "ddof")  # measures of spread
