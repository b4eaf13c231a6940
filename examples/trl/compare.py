"""The results of train.py's runs: a table over the seeds, the reward curves, and a small log.

python examples/trl/compare.py OUT [--png curves.png] [--log rollouts.parquet] [--arms]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas

sys.path.append(str(Path(__file__).resolve().parents[1]))

from runs import Runs, draw, read, spread

LAST = 25  # steps that count as the end of a run
SCHEMES = ("grpo", "gdpo")
ARMS = {
    "grpo": "GRPO",
    "grpo_sizes": "GRPO with GDPO's sizes",
    "gdpo_shares": "GDPO with GRPO's shares",
    "gdpo": "GDPO",
    "decoupled": "GDPO without its step over the batch",
}
# What differs between two arms that are alike in all else
PAIRS = {
    "size, at GRPO's weights": ("grpo_sizes", "grpo"),
    "size, at GDPO's weights": ("gdpo", "decoupled"),
    "weight, at GDPO's sizes": ("gdpo", "gdpo_shares"),
    "the rest: summed or normalised first": ("gdpo_shares", "grpo_sizes"),
    "weight and the rest": ("gdpo", "grpo_sizes"),
}
OF_ARMS = (
    "format, whole run",
    "correctness, whole run",
    "correctness, end",
    "all right, end",
    "magnitude of other advantages, end",
)


def outcome(run: pandas.DataFrame) -> dict[str, float]:
    """The measures of one run: `start` and `end` are means over the first step and the last `LAST` steps."""
    end = run[run.step > run.step.max() - LAST]
    first = run[run.step == 0]
    curve = run.groupby("step")
    return {
        "format, start": first.format.mean(),
        "format, end": end.format.mean(),
        "correctness, start": first.correctness.mean(),
        "correctness, end": end.correctness.mean(),
        "all right, end": ((end.format == 1) & (end.correctness == 3)).mean(),
        "format, whole run": run.format.mean(),
        "correctness, whole run": run.correctness.mean(),
        "advantage levels a step": curve.advantage.apply(lambda a: a.round(4).nunique()).mean(),
        "rollouts without signal": (run.advantage == 0).mean(),
        "rollouts without signal, end": (end.advantage == 0).mean(),
        "magnitude of other advantages, start": first[first.advantage != 0].advantage.abs().mean(),
        "magnitude of other advantages, end": end[end.advantage != 0].advantage.abs().mean(),
    }


def table(runs: Runs) -> str:
    """Markdown: mean and sample standard deviation over seeds, and in how many seeds GDPO has the larger number."""
    values = {s: pandas.DataFrame([outcome(run) for run in runs[s].values()]) for s in SCHEMES}
    lines = ["| | GRPO | GDPO | GDPO - GRPO, paired | GDPO larger in |", "|---|--:|--:|--:|--:|"]
    for name in values["grpo"]:
        difference = values["gdpo"][name] - values["grpo"][name]
        cells = [spread(values["grpo"][name]), spread(values["gdpo"][name]), spread(difference, sign="+")]
        lines.append(f"| {name} | {' | '.join(cells)} | {(difference > 0).sum()} of {len(difference)} |")
    return "\n".join(lines)


def outcomes(folder: Path) -> dict[str, pandas.DataFrame]:
    """The measures of all runs in a folder: arm to a row for each of its seeds."""
    found = {}
    for arm in ARMS:
        if any(folder.glob(f"{arm}-*.parquet")):
            found[arm] = pandas.DataFrame.from_dict(
                {seed: outcome(run) for seed, run in read(folder, (arm,))[arm].items()}, orient="index"
            )
    return found


def arms_table(found: dict[str, pandas.DataFrame]) -> str:
    """Markdown: each arm over its own seeds, then pairs of arms that differ in one thing, over the seeds of both."""
    heads = f"| | seeds | {' | '.join(OF_ARMS)} |\n|---|--:|{'--:|' * len(OF_ARMS)}"
    lines = [heads]
    for arm, values in found.items():
        lines.append(f"| {ARMS[arm]} | {len(values)} | {' | '.join(spread(values[name]) for name in OF_ARMS)} |")
    lines += ["", heads]
    for what, (one, other) in PAIRS.items():
        if one in found and other in found:
            apart = (found[one] - found[other]).dropna()  # seeds that one of them lacks
            if len(apart):
                cells = " | ".join(spread(apart[name], sign="+") for name in OF_ARMS)
                lines.append(f"| {what}: {ARMS[one]} - {ARMS[other]} | {len(apart)} | {cells} |")
    return "\n".join(lines)


def small_log(runs: Runs, every: int) -> pandas.DataFrame:
    """Whole steps of the first seed's two runs, from each run in turn.

    Each step is then one batch, and each prompt in a step one group, as trainers log them: GDPO's batch
    normalisation would differ if two runs shared a step.
    """
    first = {scheme: next(iter(by_seed.values())) for scheme, by_seed in runs.items()}
    steps = range(0, int(first["grpo"].step.max()) + 1, every)
    kept = [first[SCHEMES[i % 2]].query("step == @step") for i, step in enumerate(steps)]
    return pandas.concat(kept, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--png", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--every", type=int, default=10, help="log one step in this many")
    parser.add_argument("--arms", action="store_true", help="instead, what of GDPO makes the difference")
    options = parser.parse_args()
    if options.arms:
        print(arms_table(outcomes(options.out)))
        return
    runs = read(options.out, SCHEMES)
    print(table(runs))
    labels = {scheme: scheme.upper() for scheme in SCHEMES}
    draw(runs, labels, ("format", "correctness"), options.png or options.out / "curves.png")
    if options.log:
        small_log(runs, options.every).to_parquet(options.log, index=False, compression="zstd")


if __name__ == "__main__":
    main()
