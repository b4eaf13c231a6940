"""A run replayed under specs: each step of the log as one batch, one step in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Advantage, Run, Step
from rewardspec.runs.audit import Audit, Remark
from rewardspec.runs.batches import Batch, Codes, SpecOverRun
from rewardspec.runs.by import By, ByValue
from rewardspec.runs.compare import AgainstAnother, Comparison
from rewardspec.runs.components import ComponentHealth, Components
from rewardspec.runs.health import MEANS, StepHealth, health, mean_over
from rewardspec.runs.moments import Numbers
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import shorten
from rewardspec.text.html import html_table

Progress = Callable[[int, int], None]  # steps, rollouts

FIRST = 12  # steps that a notebook shows


@dataclass(frozen=True)
class Logged:
    """The advantages of the log beside those of the spec. largest: the largest difference; None if none can be told."""

    rollouts: int
    largest: float | None


@dataclass(frozen=True)
class UnderSpec:
    """A run under one spec. outcome: the condition that makes a rollout right, and how it is known; None without one.

    notes: what the numbers do not say, a sentence each: guarantees that could not be looked at, how state was carried.
    """

    name: str
    fingerprint: str
    outcome: str | None
    steps: tuple[StepHealth, ...]
    components: tuple[ComponentHealth, ...]
    audit: tuple[Remark, ...]
    by: tuple[ByValue, ...]
    logged: Logged
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RunReplay:
    """A run under specs. difference: of the second against the first; None for one spec."""

    run: Run
    specs: tuple[UnderSpec, ...]
    difference: AgainstAnother | None

    def __repr__(self) -> str:
        specs = ", ".join(f"{spec.name}: {len(spec.audit)} remarks" for spec in self.specs)
        return f"<RunReplay of {len(self.specs[0].steps)} steps, under {specs}>"

    def _repr_html_(self) -> str:
        return "".join(_html(spec) for spec in self.specs)

    def to_json(self) -> dict[str, object]:
        """Plain values: `format`, `lost`, `specs`, and a list of rows each for `steps`, `components`, `audit`, `by`."""

        def rows(part: str) -> list[dict[str, object]]:
            return [{"spec": spec.name, **asdict(row)} for spec in self.specs for row in getattr(spec, part)]

        specs = [
            {"name": s.name, "fingerprint": s.fingerprint, "outcome": s.outcome, "logged": asdict(s.logged)}
            | {"notes": list(s.notes), "means": {name: mean_over(s.steps, name) for name in MEANS}}
            for s in self.specs
        ]
        found: dict[str, object] = {"format": self.run.format, "lost": list(self.run.lost), "specs": specs}
        found |= {part: rows(part) for part in ("steps", "components", "audit", "by")}
        if self.difference is not None:
            found["difference"] = asdict(self.difference)
        return found


def _html(under: UnderSpec) -> str:
    """The first steps of a run under a spec, with the remarks of the audit, as a table."""
    heads = ("step", "rollouts", "groups", "groups without signal", "right", "spread")
    rows = [
        [s.step, s.rollouts, s.groups, f"{s.groups_without_signal:.1%}", _percent(s.right), f"{s.advantage_spread:.3g}"]
        for s in under.steps[:FIRST]
    ]
    rows += [["..."] * len(heads)] if len(under.steps) > FIRST else []
    return html_table(f"{under.name}: {len(under.steps)} steps", heads, rows, "; ".join(r.message for r in under.audit))


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"


def _logged(advantages: Sequence[Advantage], items: Codes | None) -> Numbers | None:
    """The advantages of a log as those of a batch, NaN where missing; None if they are of another level.

    items: how many each rollout has; None for one each.
    """
    counts = [None] * len(advantages) if items is None else items.tolist()
    flat: list[float | None] = []
    for value, count in zip(advantages, counts, strict=True):
        if (len(value) if isinstance(value, list) else None) != count:
            return None
        flat += value if isinstance(value, list) else [value]
    return np.array([np.nan if value is None else value for value in flat], dtype=float)


class _Pass:
    """One spec over the steps, as they come."""

    def __init__(self, spec: Spec, by: str | None, total_steps: int | None):
        self.asked = SpecOverRun(spec, total_steps)
        self.steps: list[StepHealth] = []
        self.components, self.audit = Components(spec), Audit(self.asked)
        self.by = None if by is None else By(by)
        self.compared, self.largest, self.infinite = 0, 0.0, 0

    def add(self, batch: Batch, number: int) -> None:
        self.steps.append(health(batch, number, self.asked.measures.normalised))
        self.components.add(batch)
        self.audit.add(batch, number)
        if self.by is not None:
            self.by.add(batch)
        theirs = None if batch.step.advantages is None else _logged(batch.step.advantages, batch.items)
        if theirs is not None:
            self.infinite += int(np.isinf(theirs).sum())
            apart = np.abs(theirs - batch.values)[np.isfinite(theirs)]
            self.compared += len(apart) if batch.items is None else len(batch.of)
            self.largest = max(self.largest, float(apart.max(initial=0.0)))

    def notes(self) -> Iterator[str]:
        yield from self.audit.broken.notes()
        if self.asked.unmeasured:
            names = ", ".join(f"`{shorten(name)}`" for name in self.asked.unmeasured)
            yield f"the log has no column {names}, which the outcome reads: nothing is known of right and wrong"
        if self.infinite:
            yield f"the log has {self.infinite:,} infinite advantages, which are not compared"
        if self.asked.carried:
            yield "its state begins at its first value, and steps that were not logged did not change it"

    def found(self) -> UnderSpec:
        spec, outcome = self.asked.spec, self.asked.measures.outcome
        components = self.components.found()
        said = None
        if outcome is not None:
            said = outcome.condition + ("" if outcome.how == "declared" else f" (taken from its {outcome.how})")
        return UnderSpec(
            spec.name,
            spec.fingerprint,
            said,
            tuple(self.steps),
            components,
            self.audit.found(self.steps, components),
            () if self.by is None else self.by.found(),
            Logged(self.compared, self.largest if self.compared else None),
            tuple(self.notes()),
        )


class Replaying:
    """Specs over the steps of a run, as they come. steps, rollouts: how many there were."""

    def __init__(self, specs: Sequence[Spec], *, by: str | None = None, total_steps: int | None = None):
        self.passes = [_Pass(spec, by, total_steps) for spec in specs]
        self.comparison = Comparison() if len(specs) > 1 else None
        self.steps = self.rollouts = 0

    def add(self, step: Step) -> None:
        """Replay one more step. Raises BadLog for one that does not have what a spec reads."""
        number = self.steps if step.number is None else step.number
        batches = [one.asked.batch(step, self.steps) for one in self.passes]
        for one, batch in zip(self.passes, batches, strict=True):
            one.add(batch, number)
        if self.comparison is not None:
            self.comparison.add(batches[0], batches[1], number)
        self.steps += 1
        self.rollouts += len(step)

    def found(self, run: Run) -> RunReplay:
        """What the steps so far come to. Raises BadLog if there were none."""
        if not self.rollouts:
            raise BadLog("the log has no rollouts")
        found = _told_apart([one.found() for one in self.passes])
        return RunReplay(run, found, None if self.comparison is None else self.comparison.found())


def replay(
    run: Run,
    specs: Sequence[Spec],
    *,
    by: str | None = None,
    total_steps: int | None = None,
    progress: Progress | None = None,
) -> RunReplay:
    """What the steps of a run come to under each spec, and the second spec against the first.

    replay(open_run([Path("completions")]), [rewardspec.load("spec.yaml")]).specs[0].audit

    by: a column by whose values groups are told apart. total_steps: the length of training, by default as the log says
    or its last step. progress: called after each step with the steps and rollouts so far. Raises BadLog for a log that
    does not have what a spec reads, OSError.
    """
    under = Replaying(specs, by=by, total_steps=_length(run, specs, total_steps))
    for step in run.steps():
        under.add(step)
        if progress is not None:
            progress(under.steps, under.rollouts)
    return under.found(run)


def replay_each(run: Run, specs: Mapping[str, Spec], *, total_steps: int | None = None) -> dict[str, UnderSpec]:
    """What a run comes to under each of some specs, read once. One that a step gives no advantages is left out.

    Raises BadLog for a log that cannot be read, OSError.
    """
    length = _length(run, [*specs.values()], total_steps)
    passes = {name: _Pass(spec, None, length) for name, spec in specs.items()}
    for place, step in enumerate(run.steps() if passes else ()):
        for name, one in [*passes.items()]:
            try:
                one.add(one.asked.batch(step, place), place if step.number is None else step.number)
            except BadLog:
                del passes[name]
    return {name: one.found() for name, one in passes.items()}


def _length(run: Run, specs: Sequence[Spec], total_steps: int | None) -> int | None:
    """The length of training: as it is given, as the log says, else its last step if a spec reads it."""
    length = total_steps or run.total_steps
    if length is None and any({"progress", "total_steps"} & spec.needs for spec in specs):
        length = max((step.number for step in run.steps() if step.number is not None), default=None)
    return length


def _told_apart(found: Sequence[UnderSpec]) -> tuple[UnderSpec, ...]:
    """The same, where several have one name with the fingerprint behind it."""
    names = [one.name for one in found]
    return tuple(
        replace(one, name=f"{one.name} ({one.fingerprint})") if names.count(one.name) > 1 else one for one in found
    )
