"""The values and weights of a spec's components at moments of a run, for `rewardspec explain --at`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from rewardspec.ir.node import Node, walk
from rewardspec.spec import Spec
from rewardspec.text.numbers import format_number


@dataclass(frozen=True)
class Moment:
    """A step, or a share of the run. text: as the user wrote it."""

    text: str
    step: int | None = None
    progress: Fraction | None = None


def read_moments(text: str, total_steps: int | None) -> list[Moment]:
    """The moments in `0,30,100%`: steps, and shares of the run. Raises ValueError for anything else."""
    found = []
    for part in (part.strip() for part in text.split(",")):
        number = part.removesuffix("%")
        if len(number) > 40 or not number.replace(".", "", 1).isdecimal() or not number.isascii():
            raise ValueError(f"moments are steps or percentages of the run, such as `0,30,100%`, not {part!r}")
        value = Fraction(number)
        if part.endswith("%"):
            if value > 100:
                raise ValueError(f"{part} is after the end of the run")
            step = None if total_steps is None else round(total_steps * value / 100)
            found.append(Moment(part, step, value / 100))
        elif value.denominator == 1:
            progress = None if total_steps is None else min(value / total_steps, Fraction(1))
            progress = Fraction(0) if not value else progress
            found.append(Moment(part, int(value), progress))
        else:
            raise ValueError(f"a step is a whole number, not {part!r}; a percentage of the run ends in %")
    return found


def times_read(spec: Spec) -> set[str]:
    """Those of `step`, `total_steps` and `progress` that the spec reads."""
    nodes = walk([*spec.program.results, *spec.program.labels.values()])
    return {n.attributes[0] for n in nodes if n.op == "given"} & {"step", "total_steps", "progress"}


def schedule(spec: Spec, moments: list[Moment], total_steps: int | None) -> list[tuple[str, ...]]:
    """Rows (component, "values" or "weight", text at each moment): its domain, and its weight.

    Raises ValueError if the spec reads `total_steps` or `progress` and these are unknown.
    """
    used = times_read(spec)
    for moment in moments:
        known = {"step": moment.step, "total_steps": total_steps, "progress": moment.progress}
        missing = sorted(name for name in used if known[name] is None)
        if missing:
            raise ValueError(f"the spec reads `{missing[0]}`, which is unknown at {moment.text}: add --total-steps")
    specs = [spec.at(moment.step, total_steps, moment.progress) for moment in moments]
    rows = []
    for i, component in enumerate(spec.program.components):
        then = [s.program.components[i] for s in specs]
        rows.append((component.name, "values", *(_shown(c.shaped) for c in then)))
        rows.append((component.name, "weight", *(_shown(c.weight) for c in then)))
    return rows


def _shown(node: Node) -> str:
    constant = node.domain.constant
    return str(node.domain) if constant is None else format_number(constant)
