"""What a spec makes of the steps of a run: arrays of advantages, rewards and shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardspec.function import AdvantageFunction, Result, State
from rewardspec.groups.batch import normalisation, without_batch
from rewardspec.ir.node import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.outcome import Outcome
from rewardspec.logs.columns import ALIASES, listed, values_of
from rewardspec.logs.rows import BadLog, located
from rewardspec.logs.run import Step, Trained
from rewardspec.ops.domain import Level
from rewardspec.runs.moments import Numbers, extremes
from rewardspec.spec import Spec, compile, loads
from rewardspec.text.diagnostics import did_you_mean, shorten

LENGTH = "rewardspec/length/"  # how the names of columns begin that say how long a list is
MOST_NEAR = 1000  # names among which one that is like another is sought
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    """A step under a spec: N rollouts in P groups, as arrays.

    of: [N] the number of each rollout's group. sizes: [P].
    values: [N] the advantages; [M] of those with a value for each item, in the order of rollouts. items: [N] how many
        of them each rollout has; None for one each.
    advantages: [N]; of items their mean, 0 of none.
    low, high: [P] the least and greatest advantage of a group, of items if it has a value for each.
    before: [N] the advantage before the batch's normalisation; `advantages` if there is none, None if it is not known.
    rewards: name to [N], shaped values, of items their mean; NaN is missing.
    shares: name to [N], the size of the component's share of the advantage, of items their sum; None if the advantage
        is no sum of shares.
    weights: name to the mean size of the component's weight.
    total: [N], None if the spec has none. right: [N], None without a declared outcome. kept: [P].
    """

    step: Step
    of: Codes
    sizes: Codes
    values: Numbers
    items: Codes | None
    advantages: Numbers
    low: Numbers
    high: Numbers
    before: Numbers | None
    total: Numbers | None
    right: NDArray[np.bool_] | None
    kept: NDArray[np.bool_]
    spec: Spec
    out: Result

    @cached_property
    def rewards(self) -> dict[str, Numbers]:
        found = {}
        for component in self.spec.program.components:
            x, level = numbers(self.out.rewards[component.name]), component.shaped.level
            if level.listed:
                x = _mean(x, self._rows(self.out.lengths[level.name].cpu().numpy()), len(self.of), np.nan)
            found[component.name] = x
        return found

    @cached_property
    def shares(self) -> dict[str, Numbers] | None:
        found = self.out.shares
        rows = self._rows(self.items)
        return None if found is None else {n: _sum(np.abs(numbers(x)), rows, len(self.of)) for n, x in found.items()}

    @cached_property
    def weights(self) -> dict[str, float]:
        return {name: float(np.abs(numbers(x)).mean()) for name, x in self.out.weights.items()}

    @cached_property
    def sums(self) -> Numbers:
        """[N] the size of each rollout's advantage, of items their sum."""
        size = np.abs(self.values)
        return size if self.items is None else _sum(size, self._rows(self.items), len(self.of))

    def _rows(self, counts: Codes | None) -> Codes:
        """The rollout of each item, [M], of which rollouts have so many; None for one each."""
        rollouts = np.arange(len(self.of))
        return rollouts if counts is None else np.repeat(rollouts, counts)

    @cached_property
    def dead(self) -> NDArray[np.bool_]:
        """[P] whether all advantages of a group are equal, to within rounding."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        found: NDArray[np.bool_] = ~(self.high - self.low > 4 * np.finfo(np.float32).eps * size)
        return found

    @cached_property
    def rights(self) -> Codes | None:
        """[P] how many rollouts of a group are right."""
        return (
            None
            if self.right is None
            else np.bincount(self.of, weights=self.right, minlength=len(self.sizes)).astype(np.int64)
        )

    @cached_property
    def lengths(self) -> Numbers | None:
        """[N] the length of each rollout: its tokens, else the characters of its completion; None without either."""
        columns = self.step.columns
        name = next((n for n in ("tokens", *ALIASES["tokens"]) if n in columns), None)
        if name is not None:
            return np.array([_length(value) for value in columns[name]])
        texts = columns.get("completion")
        return None if texts is None else np.array([np.nan if t is None else float(len(t)) for t in texts])


def own_spec(trained: Trained) -> Spec:
    """The spec that a run was trained under. Raises SpecError, ValueError for a dialect that is not known."""
    found = loads(trained.text, "the log's own spec", constants=trained.constants, advantage=trained.advantage)
    return found if trained.dialect is None else found.under(trained.dialect)


@dataclass(frozen=True, eq=False)
class Measures:
    """What a batch is asked beside its advantages.

    outcome: what makes a rollout right; None if that is not known. right: function to 1 for rollouts that are, 0 for
    others. normalised: whether the spec has a step over the batch. before: function to the advantage before that step.
    The functions are None where there is nothing to ask, or where it cannot be known.
    """

    outcome: Outcome | None
    right: AdvantageFunction | None
    normalised: bool
    before: AdvantageFunction | None


def measures_of(spec: Spec) -> Measures:
    """What batches under a spec are asked."""
    program, outcome, right = spec.program, Facts(spec).outcome, None
    normalised = normalisation(program.graph, program.advantage) != "none"
    root, alone = without_batch(program.graph, program.advantage)
    if outcome is not None:
        own = spec if outcome.how == "declared" else spec.varied(outcome=outcome.expr)
        graph, truth = own.program.graph, own.program.outcome
        assert truth is not None, "it was declared"
        right = measure(own, graph.if_(truth.holds, graph.const(1), graph.const(0)))
    return Measures(outcome, right, normalised, measure(spec, root) if normalised and alone else None)


def batch_of(
    spec: Spec, measures: Measures, step: Step, of: Codes, out: Result, before: Numbers | None, right: Numbers | None
) -> Batch:
    """A step with what a spec made of it. of: [N] the number of each rollout's group, in order of first appearance.

    before, right: [N] what the functions of `measures` give; None where it is not known.
    """
    level, count = spec.program.advantage.level, len(out.kept)
    items = out.lengths[level.name].cpu().numpy() if level.listed else None
    rows = np.arange(len(of)) if items is None else np.repeat(np.arange(len(of)), items)
    values = numbers(out.advantages)
    low, high = extremes(values, of[rows], count)
    low, high = np.where(low > high, 0.0, low), np.where(low > high, 0.0, high)  # a group without items
    advantages = _mean(values, rows, len(of), 0.0) if level.listed else values
    total = spec.program.total
    untotalled = out.total is None or (total is not None and total.level.listed)  # of items there is none for a rollout
    return Batch(
        step=step,
        of=of,
        sizes=np.bincount(of, minlength=count),
        values=values,
        items=items,
        advantages=advantages,
        low=low,
        high=high,
        before=before if measures.normalised else advantages,
        total=None if untotalled else numbers(out.total),
        right=None if right is None else right > 0,
        kept=out.kept.cpu().numpy(),
        spec=spec,
        out=out,
    )


def lacking(step: Step, names: Sequence[str]) -> list[str]:
    """The columns that a step of the log does not have, under no name."""
    return [name for name in names if not {name, *ALIASES.get(name, ())} & step.columns.keys()]


def unmeasured_lists(spec: Spec) -> tuple[str, ...]:
    """The lists of a spec that no column is read of, as in `correct / position`."""
    measured = {spec.program.columns[name].level.name for name in spec.columns}
    return tuple(name for name in spec.lists if name not in measured)


class SpecOverRun:
    """A spec that is asked about the steps of a run, one after another.

    State goes from step to step, unless the log has what the spec itself was called with. carried: whether it did.
    unmeasured: columns of the outcome that the log lacks.
    """

    def __init__(self, spec: Spec, total_steps: int | None = None):
        self.spec, self.total_steps = spec, total_steps
        self.function = compile(spec)
        self.state: State | None = self.function.initial_state()
        self.carried = False
        self.unmeasured: dict[str, None] = {}
        self.measures, self.unread = measures_of(spec), unmeasured_lists(spec)
        self.held: tuple[Step | None, dict[str, Any]] = None, {}  # the columns of a step, as they are asked for

    def columns(self, step: Step, names: Sequence[str]) -> dict[str, Any]:
        """The values of columns as the compiled function takes them. Raises BadLog, which names all that is wrong."""
        if self.held[0] is not step:
            self.held = step, {}
        found = self.held[1]
        gaps, problems = [], []
        for name in names:
            if name in found:
                continue
            called = next((n for n in (name, *ALIASES.get(name, ())) if n in step.columns), None)
            if called is None:
                near = did_you_mean(name, islice(step.columns, MOST_NEAR))
                gaps.append(f"`{name}`" + (f" ({near})" if near else ""))
                continue
            column, values = self.spec.program.columns[name], []
            for i, value in enumerate(step.columns[called]):
                try:
                    values.append(values_of(column, value))
                except ValueError as error:
                    problems.append((i, f"`{called}` {error}"))
            plain = not (column.level.listed or column.domain.symbols or column.domain.ids)
            found[name] = np.array([np.nan if v is None else v for v in values], float) if plain else values
        if gaps:
            lacks = f"the log has no column {', '.join(gaps)}, which {self.spec.name} reads"
            raise BadLog(f"{lacks}; it has {listed([*step.columns])}")
        if problems:
            raise BadLog(_located(step, sorted(problems)))
        return {name: found[name] for name in names}

    def batch(self, step: Step, place: int) -> Batch:
        """The step under the spec. place: of the step in the run, from 0: its number if it has none. Raises BadLog."""
        columns = self.columns(step, self.spec.columns)
        number = step.number if step.number is not None else place
        moment = self._moment(step, number) | self._lengths(step)
        codes: dict[object, int] = {}
        of = np.array([codes.setdefault(g, len(codes)) for g in step.groups], dtype=np.int64)
        try:
            out = self.function(columns, of, **moment, state=self._before(step))
            right = None if self._lacks_outcome(step) else self._ask(self.measures.right, step, of, moment)
            before = self._ask(self.measures.before, step, of, moment)
        except ValueError as error:
            raise BadLog(f"{self.spec.name}, step {number}: {error}") from None
        self.state = out.state
        return batch_of(self.spec, self.measures, step, of, out, before, right)

    def _lacks_outcome(self, step: Step) -> bool:
        """Whether the log lacks a column that only the outcome reads, as trainers do not measure it."""
        lacks = lacking(step, () if self.measures.right is None else self.measures.right.spec.columns)
        self.unmeasured |= dict.fromkeys(lacks)
        return bool(lacks)

    def _moment(self, step: Step, number: int) -> dict[str, Any]:
        """The moment of training at a step, and the seed of its draws, as the spec was called if the log says so."""
        call, total = step.call, max(self.total_steps or 0, number) or None
        if call is None:
            return {"step": number, "total_steps": total}
        own = call.fingerprint == self.spec.fingerprint
        return {"step": number, "total_steps": (call.total_steps if own else None) or total, "seed": call.seed}

    def _lengths(self, step: Step) -> dict[str, dict[str, list[int]]]:
        """How many items each rollout has of lists that no column is read of. Raises BadLog where the log lacks it."""
        found = {}
        for name in self.unread:
            called = LENGTH + name
            if called not in step.columns:
                raise BadLog(
                    f"the log does not say how many items of the list `{name}` a rollout has, which {self.spec.name} "
                    f"reads: name the column that does, --columns {called}=COLUMN"
                )
            values, problems = step.columns[called], []
            for i, value in enumerate(values):
                if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or value < 0:
                    problems.append((i, f"`{called}` is {shorten(repr(value))}: it must be a whole number, 0 or more"))
            if problems:
                raise BadLog(_located(step, problems))
            found[name] = [int(value) for value in values]
        return {"lengths": found} if found else {}

    def _before(self, step: Step) -> State | None:
        """The state before a step. Raises RolloutError for one in the log that does not fit."""
        call = step.call
        if self.state is None:
            return None
        if call is None or call.state is None or call.fingerprint != self.spec.fingerprint:
            self.carried = True
            return self.state
        return self.function.checked_state(call.state)

    def _ask(
        self, function: AdvantageFunction | None, step: Step, of: Codes, moment: Mapping[str, Any]
    ) -> Numbers | None:
        if function is None:
            return None
        return numbers(function(self.columns(step, function.spec.columns), of, **moment).advantages)


def measure(spec: Spec, node: Node) -> AdvantageFunction | None:
    """A function to the values of a node, for every rollout; None if it reads state, or has a value for each item."""
    program = spec.program
    states = set(program.states)
    if any(n.op == "column" and n.attributes[0] in states for n in walk([node])) or node.level.listed:
        return None
    node = node if node.level is Level.ROLLOUT else program.graph.spread(node)
    alone = replace(program, advantage=node, components=[], states={}, keep=None, copies=None, total=None)
    return AdvantageFunction(replace(spec, program=alone))


def numbers(x: Any) -> Numbers:
    """A tensor as an array, on the CPU."""
    found: Numbers = x.detach().cpu().double().numpy()
    return found


def _length(tokens: Any) -> float:
    """The tokens of a rollout; of a list, such as its turns, their sum; NaN of what is no number."""
    try:
        total = float(sum(tokens if isinstance(tokens, list) else [tokens]))
    except (TypeError, ValueError, OverflowError):  # a log can have texts, lists of lists or gaps there
        return float("nan")
    return total if isfinite(total) else float("nan")


def _sum(values: Numbers, rows: Codes, count: int) -> Numbers:
    """The sum over each rollout's items, [count]."""
    return np.bincount(rows, values, minlength=count).astype(np.float64)


def _mean(values: Numbers, rows: Codes, count: int, of_none: float) -> Numbers:
    """The mean of each rollout's items, [count], without missing ones."""
    there = ~np.isnan(values)
    sums = _sum(values[there], rows[there], count)
    counts = np.bincount(rows[there], minlength=count)
    return np.where(counts > 0, sums / np.maximum(counts, 1), of_none)


def _located(step: Step, problems: Sequence[tuple[int, str]]) -> str:
    """Problems of rollouts of a step, each with its file and row."""
    if not step.places:
        return located(Path(f"step {step.number}"), [(i + 1, reason) for i, reason in problems])
    by_file: dict[Path, list[tuple[int, str]]] = {}
    for i, reason in problems:
        path, row = step.places[i]
        by_file.setdefault(path, []).append((row, reason))
    return "\n".join(located(path, found) for path, found in by_file.items())
