"""The results of train.py's runs: two tables over the seeds, and the curves.

python examples/agent/compare.py OUT [--png curves.png]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas

sys.path.append(str(Path(__file__).resolve().parents[1]))

from runs import Runs, draw, read, spread

LAST = 25  # steps that count as the end of a run
ARMS = {
    "outcome_only": "outcome only",
    "summed": "summed",
    "everywhere": "everywhere",
    "on_its_turn": "on its turn",
}


SIGNAL = ("right calls punished", "wrong answers rewarded", "magnitude on first turns", "magnitude on second turns")


def with_parts(runs: Runs) -> Runs:
    """The runs with a number for each thing that is counted in a rollout, missing where it does not apply."""
    for by_seed in runs.values():
        for run in by_seed.values():
            first, last = run.advantages.str[0], run.advantages.str[-1]
            run["right answers"] = run.outcome
            run["right calls"] = (run.call.str[0] == 1).astype(float)
            run["right calls punished"] = (first < 0).where(run["right calls"] == 1)
            run["wrong answers rewarded"] = (last > 0).where(run.outcome == 0)
            run["magnitude on first turns"] = first.abs()
            run["magnitude on second turns"] = run.advantages.str[1].abs()
    return runs


def outcome(run: pandas.DataFrame) -> dict[str, float]:
    """The measures of one run: `start` and `end` are means over the first step and the last `LAST` steps."""
    end = run[run.step > run.step.max() - LAST]
    found = {}
    for name in ("right answers", "right calls"):
        found[f"{name}, start"] = run[run.step == 0][name].mean()
        found[f"{name}, whole run"] = run[name].mean()
        found[f"{name}, end"] = end[name].mean()
    found["right answers after right calls, end"] = end[end["right calls"] == 1]["right answers"].mean()
    for name in SIGNAL:
        found[f"{name}, whole run"] = run[name].mean()
    return found


def measured(runs: Runs) -> dict[str, pandas.DataFrame]:
    """By arm, the measures of each seed."""
    return {arm: pandas.DataFrame([outcome(run) for run in runs[arm].values()]) for arm in ARMS}


def table(values: dict[str, pandas.DataFrame]) -> str:
    """Markdown: mean and sample standard deviation over seeds."""
    lines = [f"| | {' | '.join(ARMS.values())} |", f"|---|{'--:|' * len(ARMS)}"]
    for name in values["on_its_turn"]:
        lines.append(f"| {name} | {' | '.join(spread(values[arm][name]) for arm in ARMS)} |")
    return "\n".join(lines)


def differences(values: dict[str, pandas.DataFrame]) -> str:
    """Markdown: what `on_its_turn` has more than each other arm, paired by seed, and Student's t of it."""
    others = {arm: label for arm, label in ARMS.items() if arm != "on_its_turn"}
    lines = [f"| on its turn minus | {' | '.join(others.values())} |", f"|---|{'--:|' * len(others)}"]
    for name in values["on_its_turn"]:
        if name.startswith(("right answers", "right calls,")) and not name.endswith("start"):
            cells = [_paired(values["on_its_turn"][name] - values[arm][name]) for arm in others]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _paired(difference: pandas.Series) -> str:
    n, deviation = len(difference), difference.std()
    t = f", t = {difference.mean() / (deviation / n**0.5):.1f}" if n > 1 and deviation > 1e-9 else ""
    return f"{spread(difference, sign='+')}, {(difference > 0).sum()} of {n}{t}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--png", type=Path)
    options = parser.parse_args()
    runs = with_parts(read(options.out, tuple(ARMS)))
    values = measured(runs)
    print(table(values), differences(values), sep="\n\n")
    draw(runs, ARMS, ("right answers", "right calls"), options.png or options.out / "curves.png")


if __name__ == "__main__":
    main()
