"""Runs of the examples in trl/ and agent/: read, averaged over seeds, and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Runs = dict[str, dict[int, pandas.DataFrame]]  # the rollouts of each run, by arm and seed


def read(folder: Path, arms: Sequence[str]) -> Runs:
    """The runs in `folder`, files ARM-SEED.parquet, of the seeds that all arms have."""
    found = {
        arm: {int(path.stem.removeprefix(f"{arm}-")): path for path in sorted(folder.glob(f"{arm}-*.parquet"))}
        for arm in arms
    }
    common = sorted(set.intersection(*(set(paths) for paths in found.values())))
    if not common:
        raise SystemExit(f"{folder} has no seed that was trained with all of {', '.join(arms)}: run train.py first")
    return {arm: {seed: pandas.read_parquet(paths[seed]) for seed in common} for arm, paths in found.items()}


def spread(values: pandas.Series, sign: str = "") -> str:
    """Mean and sample standard deviation."""
    deviation = f" ± {values.std():.3f}" if len(values) > 1 else ""
    return f"{values.mean():{sign}.3f}{deviation}"


def draw(runs: Runs, labels: Mapping[str, str], columns: Sequence[str], path: Path, window: int = 10) -> None:
    """Median over seeds with the range of all of them, each curve a moving mean over `window` steps."""
    figure, axes = plt.subplots(1, len(columns), figsize=(4.5 * len(columns), 3.4), layout="constrained")
    for axis, column in zip(axes, columns, strict=True):
        for arm, label in labels.items():
            curves = [run.groupby("step")[column].mean().rolling(window, 1).mean() for run in runs[arm].values()]
            stacked = np.stack([curve.to_numpy() for curve in curves])
            (line,) = axis.plot(curves[0].index, np.median(stacked, 0), label=label)
            axis.fill_between(
                curves[0].index, stacked.min(0), stacked.max(0), color=line.get_color(), alpha=0.2, linewidth=0
            )
        axis.set(xlabel="step", ylabel=f"{column}, mean of a step")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
