"""Programs in completions, run on their tests in a sandbox. `README.md` lists what it protects from.

The column `tests` has inputs and outputs, calls of a function, or texts with `assert`; `cases.py` has the formats.
"""

from rewardspec.rewards.code.rewards import no_error, pass_rate

__all__ = ["no_error", "pass_rate"]
