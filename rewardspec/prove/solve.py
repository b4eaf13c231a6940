"""The weights of a component for which a spec keeps its guarantees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from rewardspec.groups.points import ITEMS
from rewardspec.prove.verify import NOT_REFUTED, PROVED, verify
from rewardspec.spec import Spec
from rewardspec.syntax.tree import Number

FIRST_WEIGHTS = tuple(
    Fraction(x) for x in ("0", "1/1000", "1/100", "1/10", "1/4", "1/2", "1", "2", "5", "10", "100", "10000")
)
LARGEST_WEIGHT = 2**20  # the largest weight that is tried


@dataclass(frozen=True)
class End:
    """An end of an interval of safe weights.

    safe: whether no guarantee is broken at the end itself. broken: the guarantees that are broken beyond it; empty if
    none is, up to the largest weight tried.
    """

    weight: float
    safe: bool
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Solution:
    """Intervals of weights, from 0 up, for which no guarantee is broken, found by bisection between tried weights.

    proved: whether all guarantees are proved at every weight tried in them. at_zero: the guarantees that are broken at
    weight 0. items: the most items of a list in the groups that were tried; None if no guarantee reads a list.
    """

    component: str
    intervals: list[tuple[End, End]]
    proved: bool
    at_zero: list[str] = field(default_factory=list)
    items: int | None = None

    @property
    def is_none(self) -> bool:
        return not self.intervals


def with_weight(spec: Spec, component: str, weight: Fraction) -> Spec:
    """The spec with another weight for a component. Raises ValueError for an unknown component."""
    declared = spec.declarations
    if component not in declared.components:
        raise ValueError(f"the spec has no component `{component}`; there are {', '.join(declared.components)}")
    old = declared.components[component]
    new = replace(old, weight=Number(old.span, weight))
    return spec.varied(components={**declared.components, component: new})


def solve_weight(
    spec: Spec,
    component: str,
    sizes: Sequence[int],
    digits: int = 9,
    progress: Callable[[Fraction], None] | None = None,
    items: int = ITEMS,
) -> Solution:
    """The weights of a component, from 0 up, for which no guarantee is broken in groups of these sizes.

    The weights of `FIRST_WEIGHTS` are tried. If only one of two neighbours is safe, bisection finds the weight between
    them where that changes. An interval that lies between two neighbours is missed.
    """
    known: dict[Fraction, list[str]] = {}
    proved, most = True, None

    def broken(weight: Fraction) -> list[str]:
        nonlocal proved, most
        if weight not in known:
            if progress is not None:
                progress(weight)
            verdicts = verify(with_weight(spec, component, weight), sizes, items=items)
            most = next((v.items for v in verdicts if v.items is not None), most)
            known[weight] = [v.name for v in verdicts if v.status not in (PROVED, NOT_REFUTED)]
            proved = proved and (bool(known[weight]) or all(v.status == PROVED for v in verdicts))
        return known[weight]

    marks = [*FIRST_WEIGHTS, Fraction(LARGEST_WEIGHT)]
    found: list[tuple[End, End]] = []
    first = None if broken(marks[0]) else End(0.0, True)
    for low, high in pairwise(marks):
        if bool(broken(low)) == bool(broken(high)):
            continue
        edge = _edge(broken, low, high, digits)
        if first is None:
            first = edge
        else:
            found.append((first, edge))
            first = None
    if first is not None:
        found.append((first, End(float(marks[-1]), True)))
    return Solution(component, found, proved and bool(found), broken(marks[0]), most)


def _edge(broken: Callable[[Fraction], list[str]], low: Fraction, high: Fraction, digits: int) -> End:
    """The end between two weights of which one is safe."""
    names = broken(low) or broken(high)
    rising = not broken(low)  # safe below it
    one = Fraction(1)
    while high - low > Fraction(1, 10**digits) * max(high, one):
        middle = (low + high) / 2
        if bool(broken(middle)) == rising:
            high = middle
        else:
            low = middle
        names = broken(low) or broken(high)
    near = high.limit_denominator(1000)
    if abs(near - high) < Fraction(2, 10**digits) * max(high, one):
        return End(float(near), not broken(near), names)
    return End(float(low if rising else high), True, names)
