"""Guarantees proved, or refuted by the smallest group that breaks them.

All groups that the declared domains allow are tried, up to the order of rollouts: first in floats with outward
rounding (`screen.py`), then, where these leave it open, in exact arithmetic (`decide.py`), with the eps of the spec. A
group that raises an error breaks nothing. The rest of the batch is unknown. If it can only rescale advantages (or map
them by an increasing affine map), a guarantee that is invariant to that is decided without it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rewardspec.groups.batch import is_indifferent, over_batch
from rewardspec.groups.blocks import lists_of, of_items
from rewardspec.groups.points import ITEMS
from rewardspec.groups.question import Group, Kind, Places, Question
from rewardspec.ir.node import Node, walk
from rewardspec.ops.effort import Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.prove.counterexample import Counterexample, counterexample
from rewardspec.prove.decide import BROKEN, ENDS, UNSURE, Decider
from rewardspec.prove.margins import NOTHING
from rewardspec.prove.screen import Screen
from rewardspec.prove.search import KEPT_GROUPS, search
from rewardspec.spec import Spec
from rewardspec.text.html import html_table

FEWEST_EXACT_GROUPS = 100  # groups that are decided at any cost
MOST_EXACT_VALUES = 4_000_000  # values of nodes computed exactly for one guarantee
ROLLOUTS_AT_ONCE = 200_000  # rollouts that are screened together

PROVED, REFUTED, NOT_REFUTED, UNDECIDED = "proved", "refuted", "not refuted", "undecided"
INTERRUPTED = "interrupted"
OF_NOTHING = "no group meets its condition"
TOO_CLOSE = "some groups are too close to call"
ALL_END = "every group raises an error"
SOME_END = "some groups raise an error, which breaks nothing"
EPS_ALONE = "eps alone breaks it: with eps 0 this group keeps it"

Progress = Callable[[int, int, int], None]  # group size, groups tried, groups in all


@dataclass(frozen=True)
class Verdict:
    """The verdict on one guarantee of a spec.

    status: "proved", "refuted", "not refuted" (no group breaks it, but not all were tried or some are too close to
    call) or "undecided" (the rest of the batch could decide it). sizes: the group sizes that were tried, with `groups`
    groups in all. reason: why the status is not better, or a remark; often empty. counterexample: a smallest group
    that breaks a refuted guarantee. items: the most items of a list in these groups, which bounds a proof; None if the
    guarantee reads no list.
    """

    name: str
    status: str
    sizes: tuple[int, ...] = ()
    groups: int = 0
    reason: str = ""
    counterexample: Counterexample | None = None
    items: int | None = None

    def __repr__(self) -> str:
        size = f" by a group of {self.counterexample.size}" if self.counterexample is not None else ""
        return f"<Verdict {self.name!r}: {self.status}{size}{f', {self.reason}' if self.reason else ''}>"

    @property
    def proved(self) -> bool:
        return self.status == PROVED

    @property
    def refuted(self) -> bool:
        return self.status == REFUTED

    def to_json(self) -> dict[str, object]:
        found: dict[str, object] = {
            "name": self.name,
            "status": self.status,
            "sizes": list(self.sizes),
            "groups": self.groups,
        }
        if self.items is not None:
            found["items"] = self.items
        if self.reason:
            found["reason"] = self.reason
        if self.counterexample is not None:
            found["counterexample"] = {**vars(self.counterexample), "size": self.counterexample.size}
        return found

    def _repr_html_(self) -> str:
        title, group = f"{self.name}: {self.status}", self.counterexample
        if group is None:
            sizes = f"{self.sizes[0]} to {self.sizes[-1]}" if self.sizes else "none"
            return html_table(title, ("group sizes", "groups tried"), [[sizes, f"{self.groups:,}"]], self.reason)
        columns: dict[str, Sequence[object]] = {**group.columns, "advantage": group.advantages}
        rows = [[i, *(_cell(values[i]) for values in columns.values())] for i in range(group.size)]
        notes = [*(f"{name} {_cell(value)}" for name, value in group.group.items()), *filter(None, [self.reason])]
        return html_table(title, ("rollout", *columns), rows, ", ".join(notes))


def _cell(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else value


def verify(
    spec: Spec, sizes: Sequence[int], progress: Progress | None = None, seed: int = 0, items: int = ITEMS
) -> list[Verdict]:
    """A verdict on every guarantee of a spec for groups of these sizes, in the order of the spec.

    verify(rewardspec.load("specs/papo/papo.yaml"), [2, 3]) = [<Verdict 'right answers above wrong ones': proved>, ...]

    progress: called with a group size, how many of its groups were tried, and how many there are. seed: for drawing
    groups if there are too many to try all. A KeyboardInterrupt ends the search early: guarantees that are still open
    are "not refuted", with the reason "interrupted". items: the most items of a list: what is proved is proved for
    lists of up to so many, as the verdict says. Raises SpecError.
    """
    question = Question.of(spec, eps=spec.declarations.eps, gaps=True, largest=max(sizes, default=1), items=items)
    prover = Prover(question, seed, progress)
    verdicts: dict[str, Verdict] = {}
    for name, node in question.program.guarantees.items():
        reason = undecidable(question, node)
        most = items if lists_of(walk([node])) else None
        verdicts[name] = Verdict(name, UNDECIDED if reason else PROVED, reason=reason, items=most)
    asking: set[str] = set()
    ends: Counter[str] = Counter()
    try:
        for size in sizes:
            left = [name for name, verdict in verdicts.items() if verdict.status in (PROVED, NOT_REFUTED)]
            if not left:
                break
            for name, answer in prover.ask(left, size).items():
                if answer.asks:
                    asking.add(name)
                ends[name] += answer.ends
                verdicts[name] = _after(verdicts[name], size, answer, question)
    except KeyboardInterrupt:
        for name, verdict in verdicts.items():
            if verdict.status in (PROVED, NOT_REFUTED) and verdict.sizes != tuple(sizes):
                verdicts[name] = replace(verdict, status=NOT_REFUTED, reason=INTERRUPTED)
    for name, verdict in verdicts.items():
        if verdict.status == PROVED and verdict.groups:
            if ends[name]:
                verdicts[name] = replace(verdict, reason=ALL_END if ends[name] == verdict.groups else SOME_END)
            elif name not in asking:
                verdicts[name] = replace(verdict, reason=OF_NOTHING)
    return [_bounded(verdict) for verdict in verdicts.values()]


def _bounded(verdict: Verdict) -> Verdict:
    """A verdict whose reason says how long the lists were that it is about."""
    if verdict.items is None or verdict.status not in (PROVED, NOT_REFUTED) or verdict.reason == INTERRUPTED:
        return verdict
    bound = of_items(verdict.items)
    return replace(verdict, reason=f"{bound}: {verdict.reason}" if verdict.reason else bound)


def _after(verdict: Verdict, size: int, answer: Answer, question: Question) -> Verdict:
    """The verdict after the groups of one more size."""
    status, reason = verdict.status, verdict.reason
    if answer.broken is not None:
        status, reason = REFUTED, answer.reason
    elif answer.unsure:
        status, reason = NOT_REFUTED, TOO_CLOSE
    elif not answer.all:
        status, reason = NOT_REFUTED, not_all(question, size, answer.searched)
    sizes, groups = (*verdict.sizes, size), verdict.groups + answer.tried
    return Verdict(verdict.name, status, sizes, groups, reason, answer.broken, verdict.items)


@dataclass
class Answer:
    """A guarantee in groups of one size: the group that has `broken` it, how many were `tried`, and if those are `all`.

    asks: whether a group may meet its condition. searched: whether intervals are searched between their points. unsure:
    whether a group is too close to call. ends: how many groups raise an error.
    """

    broken: Counterexample | None = None
    reason: str = ""
    tried: int = 0
    all: bool = True
    asks: bool = False
    searched: bool = True
    unsure: bool = False
    ends: int = 0


class Prover:
    """Tries the groups of a question on its guarantees, one size after another."""

    def __init__(self, question: Question, seed: int, progress: Progress | None):
        self.question, self.seed = question, seed
        self.progress: Progress = progress or (lambda size, tried, of: None)
        self.decider, self.screen = Decider(question), Screen(question)

    def ask(self, names: Sequence[str], size: int) -> dict[str, Answer]:
        """Each guarantee, by name, in groups of one size."""
        places, complete = self.question.places(size, self.seed)
        answers = {name: Answer(all=complete, searched=not self.question.lists) for name in names}
        suspects: dict[str, list[tuple[Places, Kind]]] = {name: [] for name in names}
        nearest: dict[str, list[tuple[float, Group]]] = {name: [] for name in names}
        whole, done = sum(map(len, places)), 0
        step = max(1, ROLLOUTS_AT_ONCE // size)
        for kind, rows in zip(self.question.kinds, places, strict=True):
            for at in range(0, len(rows), step):
                some = rows[at : at + step]
                for name, found in self.screen.screen(names, some, size, kind).items():
                    answers[name].asks |= found.asks
                    answers[name].tried += len(some)
                    suspects[name] += [(row, kind) for row, kept in zip(some, found.kept, strict=True) if not kept]
                    if found.margins is not None:
                        order = sorted(range(len(some)), key=found.margins.__getitem__)[:KEPT_GROUPS]
                        nearest[name] += [(found.margins[i], self._group(some[i], kind)) for i in order]
                done += len(some)
                self.progress(size, done, whole)
        deciding = {name: self._decide(name, suspects[name], answers[name]) for name in names}
        for decided in _within_one_allowance(deciding):
            if decided % 100 == 0:
                self.progress(size, done, whole)
        for name in names:
            if answers[name].broken is None and self.question.intervals and answers[name].searched:
                found_by_search = search(self.decider, self.screen, name, nearest[name], size, self.seed)
                answers[name].tried += found_by_search.tried
                if found_by_search.group is not None:
                    self._break(name, found_by_search.group, answers[name])
        return answers

    def _group(self, row: Places, kind: Kind) -> Group:
        states, _ = self.question.states()
        return Group(tuple(states[i] for i in row), *kind)

    def _decide(self, name: str, suspects: list[tuple[Places, Kind]], answer: Answer) -> Generator[int, None, None]:
        """Decide the groups that floats left open, up to the plainest that breaks it; yields how many, after each.

        There may be too many to decide all. So groups from the plainest on take turns with groups from anywhere, and
        one of these is the answer if it is closed before there is a plainer one.
        """
        plainest_first = sorted(suspects, key=lambda suspect: len(set(suspect[0])))
        anywhere = random.Random(self.seed).sample(range(len(suspects)), len(suspects))
        broken, decided = len(suspects), set[int]()
        values = len(walk([self.question.program.guarantees[name]])) * (len(suspects[0][0]) if suspects else 1)
        most = max(FEWEST_EXACT_GROUPS, MOST_EXACT_VALUES // values)
        try:
            for at in (at for pair in enumerate(anywhere) for at in pair):
                if at < broken and at not in decided and len(decided) < most:
                    decided.add(at)
                    row, kind = plainest_first[at]
                    if self._is_broken(name, self._group(row, kind), answer):
                        broken = at
                    yield len(decided)
        finally:
            if broken < len(suspects):
                row, kind = plainest_first[broken]
                self._break(name, self._group(row, kind), answer)
            elif len(decided) < len(suspects):
                answer.all = False
                answer.tried -= len(suspects) - len(decided)

    def _is_broken(self, name: str, group: Group, answer: Answer) -> bool:
        status = self.decider.decide(self.question.program.guarantees[name], group)
        if not answer.asks and name in self.screen.of_items:
            answer.asks = self._asks(name, group)
        answer.unsure |= status == UNSURE
        answer.ends += status == ENDS
        return status == BROKEN

    def _asks(self, name: str, group: Group) -> bool:
        """Whether a group may meet the condition of a guarantee."""
        try:
            return any(v is not None and v < NOTHING for v in self.decider.values(self.screen.conditions[name], group))
        except Inexact:
            return True

    def _break(self, name: str, group: Group, answer: Answer) -> None:
        answer.broken = counterexample(self.decider, self.question.program.guarantees[name], group)
        answer.reason = EPS_ALONE if self.decider.is_broken_by_eps(name, group) else ""


def _within_one_allowance(deciding: Mapping[str, Generator[int, None, None]]) -> Iterator[int]:
    """Yields what these do. Each has an equal part of the allowance, then in turn what the others left."""
    allowance, left = Allowance(), dict(deciding)
    for last in (False, True):
        for waiting, (name, groups) in zip(range(len(left), 0, -1), [*left.items()], strict=True):
            own = Allowance(max(allowance.left, 0) // (1 if last else waiting))
            for decided in groups:
                yield decided
                if own.is_spent and decided >= FEWEST_EXACT_GROUPS:
                    break
            else:
                del left[name]
    for groups in left.values():
        groups.close()


def undecidable(question: Question, guarantee: Node) -> str:
    """Why the rest of the batch could decide a guarantee; empty if it cannot."""
    if any(over_batch(n) for n in walk([guarantee, question.root])):
        return "it depends on the rest of the batch"
    kind = question.normalisation
    if kind != "none" and not is_indifferent(question.program.graph, guarantee, question.root, kind):
        return "it depends on the scale of the advantage, which the batch's normalisation sets"
    return ""


def not_all(question: Question, size: int, searched: bool) -> str:
    """Why not all groups of a size were tried."""
    if question.intervals:
        how = "searched, not exhausted" if searched else "tried at their ends and middles"
        return f"some domains are intervals: {how}"
    if question.sampled:
        return "some domains are intervals: tried at their ends and middles"
    if not question.all_moments:
        return f"schedules were tried at {len(question.moments)} moments only"
    return f"too many groups of {size} to try them all"
