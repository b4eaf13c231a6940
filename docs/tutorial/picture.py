"""Draws right answers and dead groups by step, of the run before and of the run after."""

import matplotlib
from matplotlib import pyplot

import rewardspec

matplotlib.use("Agg")
runs = {"before": rewardspec.replay("before", "first.yaml"), "after": rewardspec.replay("rollouts")}
figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name, run in runs.items():
    steps = run.specs[0].steps
    axes[0].plot([step.right for step in steps], label=name)
    axes[1].plot([step.groups_without_signal for step in steps], label=name)
axes[0].set(title="right answers", xlabel="step", ylim=(0, None))
axes[1].set(title="dead groups", xlabel="step", ylim=(0, 1))
axes[0].legend(frameon=False)
figure.savefig("runs.png", dpi=80)
