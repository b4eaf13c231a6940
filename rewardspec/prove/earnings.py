"""What each component of a spec can earn: the bounds of its weighted value, also over a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from rewardspec.ir.node import Node
from rewardspec.lower.program import ComponentValue
from rewardspec.ops.domain import Bound
from rewardspec.prove.schedule import times_read
from rewardspec.spec import Spec
from rewardspec.syntax.tree import format_expr

MOMENTS = 51  # of a run, from its beginning to its end


@dataclass(frozen=True)
class Earnings:
    """A component's weighted value.

    values, weight, when: its domain, weight and gate as text; `when` is None without a gate. low, high: no rollout
    earns less, or more; None if that is unbounded. They follow from the domains: where weight and value read the same
    columns, not both need be reached. missing: whether the value can be missing.
    """

    name: str
    values: str
    weight: str
    when: str | None
    low: float | None
    high: float | None
    missing: bool


@dataclass(frozen=True)
class EarningsAt:
    """A component at one moment of a run: the bounds of its weight and of what it earns."""

    name: str
    progress: float
    step: int | None
    weight_low: float | None
    weight_high: float | None
    low: float | None
    high: float | None


def earnings(spec: Spec) -> tuple[Earnings, ...]:
    """What each component can earn, in the order of the spec; over a whole run, where that changes.

    earnings(rewardspec.load("specs/gdpo/math.yaml"))[0].high = 1.0
    """
    found = []
    for component in spec.program.components:
        declared = spec.declarations.components[component.name]
        low, high = _bounds(_earned(spec, component))
        found.append(
            Earnings(
                component.name,
                str(component.shaped.domain.present()),
                "" if declared.weight is None else format_expr(declared.weight),
                None if declared.when is None else format_expr(declared.when),
                low,
                high,
                component.shaped.domain.missing,
            )
        )
    return tuple(found)


def earnings_over_run(spec: Spec, total_steps: int | None, moments: int = MOMENTS) -> tuple[EarningsAt, ...]:
    """The same at moments of a run, component by component; nothing if it is the same all the time.

    Raises ValueError if the spec reads the length of the run, or the step, and that length is not known.
    """
    needs = sorted(times_read(spec) - {"progress"})
    if not times_read(spec):
        return ()
    if needs and total_steps is None:
        raise ValueError(f"the spec reads `{needs[0]}`: what changes over a run of N steps is shown by --total-steps N")
    found: list[EarningsAt] = []
    for progress in _progress(total_steps, moments):
        step = None if total_steps is None else int(progress * total_steps)
        then = spec.at(step, total_steps, progress)
        for component in then.program.components:
            weight, earned = _bounds(component.weight), _bounds(_earned(then, component))
            found.append(EarningsAt(component.name, float(progress), step, *weight, *earned))
    names = [component.name for component in spec.program.components]
    rows = {name: [row for row in found if row.name == name] for name in names}
    told = {name: {(r.weight_low, r.weight_high, r.low, r.high) for r in own} for name, own in rows.items()}
    if all(len(bounds) == 1 for bounds in told.values()):
        return ()
    return tuple(row for name in names for row in rows[name])


def _progress(total_steps: int | None, moments: int) -> Sequence[Fraction]:
    """Moments from 0 to 1, each of a whole step if their number is known."""
    if total_steps is None:
        return [Fraction(i, moments - 1) for i in range(moments)]
    steps = sorted({round(Fraction(i * total_steps, moments - 1)) for i in range(moments)})
    return [Fraction(step, total_steps) for step in steps]


def _earned(spec: Spec, component: ComponentValue) -> Node:
    return spec.program.graph.apply("*", component.weight, component.shaped)


def _bounds(node: Node) -> tuple[float | None, float | None]:
    return _finite(node.domain.lo), _finite(node.domain.hi)


def _finite(bound: Bound) -> float | None:
    return float(bound) if isfinite(bound) else None
