"""Where things lie, and how much is tried."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rewardspec"
SPECS = ROOT / "specs"
EXAMPLES = ROOT / "examples"
CASES = ROOT / "tests" / "cases"

# Random searches try so many times what they try in `make test`; set by `make fuzz`.
FUZZ = max(1, int(os.environ.get("FUZZ", "1")))
