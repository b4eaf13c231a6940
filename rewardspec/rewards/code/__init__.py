"""Programs in completions, run on their tests in a sandbox. `README.md` says what it protects from.

`tests`, the column, holds what `cases.py` reads: inputs and outputs, calls of a function, or texts with `assert`.
"""

from rewardspec.rewards.code.rewards import no_error, pass_rate

__all__ = ["no_error", "pass_rate"]
