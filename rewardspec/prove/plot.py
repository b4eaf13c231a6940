"""Figures for a slide: distinct advantage groups (GDPO, arXiv:2601.05242, Fig. 3), and the share of dead groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from rewardspec.groups.points import ITEMS
from rewardspec.groups.rates import binary_names, policy
from rewardspec.prove.simulate import Simulation, count_groups
from rewardspec.spec import Spec, loads
from rewardspec.syntax.tree import format_expr
from rewardspec.text.diagnostics import SpecError

MOST_REWARDS = 7  # as far as the paper's figure goes
GROUP_SIZE = 4  # of its right panel


def by_rewards(spec: Spec, given: Mapping[str, Fraction]) -> list[Simulation] | None:
    """Counts for 1 to 7 binary rewards under the spec's scheme; None if the scheme names components of the spec."""
    assert spec.declarations.advantage is not None, "a spec that was read has an advantage"
    scheme = format_expr(spec.declarations.advantage)
    counts = []
    for n in range(1, MOST_REWARDS + 1):
        lines = "".join(f"  r{i}: {{values: [0, 1]}}\n" for i in range(n))
        text = (
            f"rewardspec: 1\nnumerics: {{ddof: {spec.declarations.ddof}}}\ncomponents:\n{lines}advantage: '{scheme}'\n"
        )
        try:
            counts.append(count_groups(loads(text).program, "", GROUP_SIZE, given))
        except SpecError:
            return None
    return counts


def by_rate(
    spec: Spec,
    size: int,
    given: Mapping[str, Fraction],
    points: int = 21,
    names: Sequence[str] = (),
    items: int = ITEMS,
) -> list[tuple[float, Simulation]]:
    """(rate, counts) for rates from 0 to 1, equal for everything that can have a rate, or for `names` alone."""
    names = names or binary_names(spec.program)
    rates = [Fraction(i, points - 1) for i in range(points)]
    return [
        (
            float(rate),
            count_groups(spec.program, "", size, given, model=policy(spec.program, dict.fromkeys(names, rate), items)),
        )
        for rate in rates
    ]


def draw(
    path: Path, specs: list[tuple[str, Spec]], rows: list[Simulation], given: Mapping[str, Fraction], items: int
) -> None:
    """Write the figure. Raises ModuleNotFoundError without matplotlib, OSError, ValueError for an unknown format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    sizes = sorted({row.group_size for row in rows})
    shown = max(sizes) if max(sizes) <= 8 else 8
    for label, spec in specs:
        own = [row for row in rows if row.spec == label]
        axes[0].plot([r.group_size for r in own], [r.advantage_groups for r in own], marker="o", label=label)
        counts = by_rewards(spec, given)
        if counts is not None:
            ns = range(1, len(counts) + 1)
            axes[1].plot(ns, [c.advantage_groups for c in counts], marker="o", label=label)
        curve = by_rate(spec, shown, given, items=items)
        known = [(rate, found.signal.groups_without_signal) for rate, found in curve if found.signal]
        axes[2].plot([rate for rate, _ in known], [share for _, share in known], label=label)
    axes[0].set(title="Distinct advantage groups", xlabel="rollouts in a group", ylabel="advantage groups")
    axes[1].set(title=f"Binary rewards, {GROUP_SIZE} rollouts", xlabel="rewards", ylabel="advantage groups")
    axes[2].set(title=f"Dead groups, {shown} rollouts", xlabel="success rate", ylabel="share", ylim=(0, 1.02))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
