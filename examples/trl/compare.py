"""The results of train.py's runs: a table over the seeds, the reward curves, and a small log.

python examples/trl/compare.py OUT [--png curves.png] [--log rollouts.parquet]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
import pandas

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LAST = 25  # steps that count as the end of a run
SCHEMES = ("grpo", "gdpo")
REWARDS = ("format", "correctness")


def read(folder: Path) -> dict[str, dict[int, pandas.DataFrame]]:
    """The rollouts of each run by scheme and seed, for the seeds that both schemes have."""
    found = {scheme: {} for scheme in SCHEMES}
    for path in sorted(folder.glob("*-*.parquet")):
        scheme, seed = path.stem.split("-")
        found[scheme][int(seed)] = pandas.read_parquet(path)
    both = sorted(set.intersection(*(set(runs) for runs in found.values())))
    if not both:
        raise SystemExit(f"{folder} has no seed that was trained with both schemes: run train.py first")
    return {scheme: {seed: runs[seed] for seed in both} for scheme, runs in found.items()}


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


def table(runs: dict[str, dict[int, pandas.DataFrame]]) -> str:
    """Markdown: mean and sample standard deviation over seeds, and in how many seeds GDPO has the larger number."""
    values = {s: pandas.DataFrame([outcome(run) for run in runs[s].values()]) for s in SCHEMES}
    lines = ["| | GRPO | GDPO | GDPO - GRPO, paired | GDPO larger in |", "|---|--:|--:|--:|--:|"]
    for name in values["grpo"]:
        difference = values["gdpo"][name] - values["grpo"][name]
        cells = [_spread(values["grpo"][name]), _spread(values["gdpo"][name]), _spread(difference, sign="+")]
        lines.append(f"| {name} | {' | '.join(cells)} | {(difference > 0).sum()} of {len(difference)} |")
    return "\n".join(lines)


def _spread(values: pandas.Series, sign: str = "") -> str:
    deviation = f" ± {values.std():.3f}" if len(values) > 1 else ""
    return f"{values.mean():{sign}.3f}{deviation}"


def draw(runs: dict[str, dict[int, pandas.DataFrame]], path: Path, window: int = 10) -> None:
    """Median over seeds with the range of all of them, each curve a moving mean over `window` steps."""
    figure, axes = plt.subplots(1, len(REWARDS), figsize=(9, 3.4), layout="constrained")
    for axis, reward in zip(axes, REWARDS, strict=True):
        for scheme in SCHEMES:
            curves = [run.groupby("step")[reward].mean().rolling(window, 1).mean() for run in runs[scheme].values()]
            stacked = np.stack([curve.to_numpy() for curve in curves])
            (line,) = axis.plot(curves[0].index, np.median(stacked, 0), label=scheme.upper())
            axis.fill_between(
                curves[0].index, stacked.min(0), stacked.max(0), color=line.get_color(), alpha=0.2, linewidth=0
            )
        axis.set(xlabel="step", ylabel=f"{reward}, mean of a step")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def small_log(runs: dict[str, dict[int, pandas.DataFrame]], every: int) -> pandas.DataFrame:
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
    options = parser.parse_args()
    runs = read(options.out)
    print(table(runs))
    draw(runs, options.png or options.out / "curves.png")
    if options.log:
        small_log(runs, options.every).to_parquet(options.log, index=False, compression="zstd")


if __name__ == "__main__":
    main()
