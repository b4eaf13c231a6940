"""Facts about a spec that several findings read, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, wraps
from typing import Any, TypeVar

from rewardspec.groups.batch import over_batch, without_batch
from rewardspec.groups.blocks import lists_of, of_items
from rewardspec.groups.points import ITEMS
from rewardspec.groups.question import Question
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.expressions import own_expressions
from rewardspec.lint.gates import gating
from rewardspec.lint.outcome import Outcome, declared_outcome, most_like_an_outcome, named_outcome
from rewardspec.lint.small_groups import SmallGroups
from rewardspec.lower.program import Program
from rewardspec.ops.domain import Level
from rewardspec.spec import Spec
from rewardspec.syntax.tree import Name
from rewardspec.text.diagnostics import Diagnostic, Label, SpecError
from rewardspec.text.source import Span

MOST_TRIED = 4096  # rows of columns that are tried for the states of one rollout

# Why a finding was not checked, or not in all groups.
NO_OUTCOME = "the spec has no `outcome`; add one: `outcome: correct >= 1`"
OF_BATCH = "the advantage depends on the rest of the batch"
NOT_EXACT = "some values have no exact form and are too close to compare"
NO_LENGTH = "the length of the run is unknown; pass `--total-steps N`"


@dataclass(frozen=True)
class Run:
    """A training run, as far as the caller states it. Findings that need more are not checked.

    rates: the success rates of columns or components with two values. sizes: the group sizes. items: of a list at
    most, in the groups that are tried.
    """

    rates: Mapping[str, Fraction] = field(default_factory=dict)
    sizes: Sequence[int] = ()
    total_steps: int | None = None
    items: int = ITEMS


ANY_RUN = Run()  # nothing is known about it


class Facts:
    """A spec, a run, and the facts about them that several findings read."""

    def __init__(self, spec: Spec, run: Run = ANY_RUN):
        self.spec, self.run = spec, run
        self.program, self.declared = spec.program, spec.declarations
        self.unchecked: dict[str, set[str]] = {}  # reason: findings that were not checked
        self.answers: dict[Callable[..., Any], Any] = {}  # of functions that are marked `@once`

    def warn(
        self, code: str, message: str, span: Span, *, help: str | None, labels: tuple[Label, ...] = (), note: str = ""
    ) -> Diagnostic:
        return Diagnostic(code, message, span, help, labels, note, severity="warning")

    def not_checked(self, code: str, reason: str) -> None:
        """Note that a finding was not checked, or not in all groups, and why."""
        self.unchecked.setdefault(reason, set()).add(code)

    def depends_on_batch(self, code: str) -> bool:
        """Whether advantages depend on the rest of the batch. If so, the finding is noted as not checked."""
        if self.reads_batch:
            self.not_checked(code, OF_BATCH)
        return self.reads_batch

    # Places --------------------------------------------------------------------------------------

    def component_place(self, name: str, key: str | None = None) -> Span:
        """The name of a component, or the value of its `key`."""
        place = self.declared.components[name].place
        return place.name if key is None else place.of(key)

    def advantage_place(self) -> Span:
        return self.declared.place.of("advantage")

    def own_place(self, node: Node) -> Span:
        """The text of this spec that a node comes from; the whole advantage if it comes from the prelude."""
        for program in self._programs():
            span = program.graph.spans.get(node)
            if span is not None and span.source is self.spec.source:
                return span
        return self.advantage_place()

    def _programs(self) -> Iterator[Program]:
        yield self.program
        yield self.question.program

    # The spec ------------------------------------------------------------------------------------

    @cached_property
    def shaped(self) -> dict[str, Node]:
        return {c.name: c.shaped for c in self.program.components}

    @cached_property
    def is_summed(self) -> bool:
        """Whether rewards can be added before they are normalised, as `grpo` does: all are of one level."""
        return len({node.level if node.level.listed else Level.ROLLOUT for node in self.shaped.values()}) < 2

    @cached_property
    def outcome(self) -> Outcome | None:
        """The outcome: as declared, else from the guarantees, else from names and gates."""
        stated = declared_outcome(self.declared, self.program)
        return stated or named_outcome(self.declared, self.program, self._gating)

    @cached_property
    def graded_outcome(self) -> str | None:
        """A component that is named like an outcome, or gates others, and has more than two values."""
        if self.outcome is not None:
            return None
        graded = [n for n, node in self.shaped.items() if node.domain.values is None or len(node.domain.values) > 2]
        graded = [n for n in graded if self.shaped[n].level is Level.ROLLOUT]
        return most_like_an_outcome(self.declared, self.program, graded, self._gating)

    @cached_property
    def _gating(self) -> set[str]:
        return gating(self.declared, self.program)

    @cached_property
    def divides_by_eps(self) -> bool:
        """Whether the spec's own text names eps, so that its meaning depends on it."""
        return any(isinstance(part, Name) and part.text == "eps" for _, part in own_expressions(self.declared))

    # Groups --------------------------------------------------------------------------------------

    @cached_property
    def _with_outcome(self) -> Spec:
        """The spec with its outcome declared, also if that comes from guarantees or names."""
        if self.outcome is None or self.outcome.how == "declared":
            return self.spec
        return replace(self.spec, declarations=replace(self.declared, outcome=self.outcome.expr))

    @cached_property
    def question(self) -> Question:
        """The question about the spec, as for `verify`, with 0 for eps."""
        found = Question.of(self._with_outcome, MOST_TRIED, items=self.run.items)
        if self.run.total_steps is not None:
            found.moments = _within_run(found.moments, Fraction(self.run.total_steps))
        return found

    @cached_property
    def groups(self) -> SmallGroups:
        return SmallGroups(self.question)

    @property
    def tried_lists(self) -> bool:
        """Whether a finding has tried groups of rollouts with lists."""
        return "question" in self.__dict__ and bool(self.question.lists)

    @property
    def bound(self) -> str:
        """The end of a claim about the advantages of all groups: the lists of those that were tried; empty without."""
        return f", {of_items(self.question.items)}" if lists_of(walk([self.question.root])) else ""

    @cached_property
    def reads_batch(self) -> bool:
        """Whether more than a change of scale depends on the rest of the batch."""
        return any(over_batch(n) for n in walk([self.question.root]))

    @cached_property
    def with_eps(self) -> Facts:
        """The same spec with eps as it is, where `question` has 0 for it."""
        try:
            program = self._with_outcome.varied(given={**self.declared.given, "eps": self.declared.eps}).program
        except SpecError:
            return self
        root, _ = without_batch(program.graph, program.advantage)
        found = Facts(self.spec, self.run)
        found.outcome, found.unchecked = self.outcome, self.unchecked
        found.question = Question(
            self._with_outcome, program, root, self.question.normalisation, MOST_TRIED, items=self.run.items
        )
        found.question.moments = self.question.moments
        return found


Answer = TypeVar("Answer")


def once(ask: Callable[[Facts], Answer]) -> Callable[[Facts], Answer]:
    """Decorates a function of facts so that it is computed once for each `Facts`."""

    @wraps(ask)
    def answered(facts: Facts) -> Answer:
        if ask not in facts.answers:
            facts.answers[ask] = ask(facts)
        answer: Answer = facts.answers[ask]
        return answer

    return answered


def _within_run(moments: list[dict[str, Fraction]], total: Fraction) -> list[dict[str, Fraction]]:
    """The moments of a run of any length, moved into a run of `total` steps, whose last is `total - 1`."""
    found: list[dict[str, Fraction]] = []
    for moment in moments:
        if "total_steps" in moment:
            moment = {"step": moment["progress"] * total, "total_steps": total, "progress": moment["progress"]}
        elif "step" in moment:
            moment = {"step": min(moment["step"], total - 1)}
        found += [moment] if moment not in found else []
    return found
