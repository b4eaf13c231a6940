"""CPU time (user and system) of starting, best of five, and as a ratio to an empty program of Python.

python tests/benchmarks/startup.py
"""

import resource
import subprocess
import sys
from pathlib import Path

SPEC = Path(__file__).parents[2] / "specs" / "gdpo" / "math.yaml"
PROGRAMS = {
    "python -c pass": ["-c", "pass"],
    "import rewardspec": ["-c", "import rewardspec"],
    "rewardspec --version": ["-m", "rewardspec", "--version"],
    "rewardspec check math.yaml": ["-m", "rewardspec", "check", str(SPEC)],
}


def seconds(arguments: list[str], times: int = 5) -> float:
    """CPU seconds of the fastest of some runs."""
    best = float("inf")
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


if __name__ == "__main__":
    empty = seconds(PROGRAMS["python -c pass"])
    for name, arguments in PROGRAMS.items():
        found = seconds(arguments)
        print(f"{name:28} {found:.3f} s  {found / empty:5.1f} times python -c pass")
