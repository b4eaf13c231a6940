"""What can be called beside definitions: operators with a `function`, and those that are no operators.

What a call comes to is in `lower/calls.py`.
"""

from __future__ import annotations

from rewardspec.ops import elementwise, reductions, structure  # noqa: F401  (they declare their functions)
from rewardspec.ops.operator import FUNCTIONS, Function

__all__ = ["FUNCTIONS", "Function"]

FUNCTIONS["clip"] = Function(("x", "low", "high"), 3, about="min(max(x, low), high)")
FUNCTIONS["raw"] = Function(("name",), 1, about="a column as it was measured")
