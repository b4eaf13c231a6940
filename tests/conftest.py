"""What holds for every test."""

import os

from places import FUZZ

pytest_plugins = ["habits"]

# Ray gives way with what it starts to every other process (a niceness of 15): beside other tests it would stand still.
os.environ.setdefault("RAY_worker_niceness", "0")

try:
    from hypothesis import settings
except ModuleNotFoundError:  # in OpenRLHF's environment, whose tests do without
    pass
else:
    # The same examples on every run, but for a few: hypothesis has no setting that keeps it from drawing constants of
    # whichever modules of ours are loaded. `FUZZ=20 pytest FILE` tries 20 times as many new ones. No deadline: a
    # machine that is busy is slow, and no test is about time.
    same = "FUZZ" not in os.environ
    settings.register_profile("ours", deadline=None, derandomize=same, database=None, max_examples=100 * FUZZ)
    settings.load_profile("ours")
