"""Guarantees proved, or refuted by the smallest group that breaks them.

All groups that the declared domains allow are tried, up to the order of rollouts: in floats that are rounded
outward (`screen.py`), and, where these leave it open, in exact arithmetic. eps is what the spec says. A group
on which the run ends with an error breaks nothing. What the rest of a batch does to a group is unknown: where it
is provably no more than a change of scale (or an increasing affine map), a guarantee that does not depend on it
is decided without it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from math import comb, inf
from typing import TYPE_CHECKING

from rewardspec.groups.parts import (
    batch_step,
    column_points,
    is_boundary,
    of_rollout,
    over_batch,
    users_of,
    without_batch,
)
from rewardspec.ir.checks import demand, find_checks
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.lower.lower import Program, lower
from rewardspec.ops.domain import Domain, Level, interval
from rewardspec.ops.effort import Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import UNKNOWN, approximate
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.spec import Spec, deep_stack
from rewardspec.text.diagnostics import Report, SpecError

if TYPE_CHECKING:
    from rewardspec.prove.screen import Box

MOST_GROUPS = 200_000  # of one size that are tried; beyond them as many are drawn
MOST_STATES = 4096  # of one rollout
MOST_VALUES = 60_000_000  # of nodes, in all groups of one size
MOST_EXACT = 4_000_000  # of them, that exact arithmetic finds for one guarantee
FEW = 256  # rollouts that are looked at however dear they are
AT_ONCE = 200_000  # rollouts that are looked at together
NOTHING = 2  # the margin of `all` of nothing, above what a comparison can have
ROUNDS = 12  # of local search where domains are intervals
_COMPARISONS = {"<": 1, "<=": 1, ">": -1, ">=": -1, "==": 0, "!=": 0}
MOMENTS = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))  # where schedules are looked at

PROVED, REFUTED, NOT_REFUTED, UNDECIDED = "proved", "refuted", "not refuted", "undecided"
BROKEN_OFF = "broken off"
OF_NOTHING = "no group meets its condition"
TOO_CLOSE = "in some groups it is too close to call"
ALL_END = "the run ends with an error on every group"
SOME_END = "on some groups the run ends with an error: they break nothing"
EPS_ALONE = "eps alone breaks it: with eps 0 this group keeps it"
KEPT, BROKEN, UNSURE, ENDS = "kept", "broken", "unsure", "ends"  # what a group does to a guarantee


@dataclass(frozen=True)
class Counterexample:
    """A group that breaks a guarantee.

    columns: what was measured, and shaped: what came of it, each a value for every rollout. group: columns
    of group level and the moment of training. advantages: less the step over the batch. breaking: rollouts
    that the broken comparison looks at.
    """

    columns: dict[str, list[float | str | None]]
    group: dict[str, float | str | None]
    shaped: dict[str, list[float | None]]
    advantages: list[float | None]
    breaking: list[int]

    @property
    def size(self) -> int:
        return len(self.advantages)

    def __repr__(self) -> str:
        return f"<Counterexample: {self.size} rollouts, {', '.join(f'{n}={v}' for n, v in self.columns.items())}>"


@dataclass(frozen=True)
class Verdict:
    """What is known of one guarantee of a spec.

    status: "proved", "refuted", "not refuted" (no group breaks it, but not all were tried or some are too close to
    call) or "undecided" (the rest of the batch could decide it). sizes: the group sizes that were tried, with `groups`
    groups in all. reason: why the status is no better, or what to know about it; often empty. counterexample: a
    smallest group that breaks a refuted guarantee.
    """

    name: str
    status: str
    sizes: tuple[int, ...] = ()
    groups: int = 0
    reason: str = ""
    counterexample: Counterexample | None = None

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
        if self.reason:
            found["reason"] = self.reason
        if self.counterexample is not None:
            found["counterexample"] = {**vars(self.counterexample), "size": self.counterexample.size}
        return found


@dataclass
class Answer:
    """What groups of one size say of a guarantee: `broken` by one, how many were `tried`, and whether those are `all`.

    asks: whether it asks something of one of them. unsure: whether one is too close to call. ends: on how many the
    run ends with an error.
    """

    broken: Counterexample | None = None
    reason: str = ""
    tried: int = 0
    all: bool = True
    asks: bool = False
    unsure: bool = False
    ends: int = 0


Progress = Callable[[int, int, int], None]  # the size of the groups, how many were tried, of how many


def verify(spec: Spec, sizes: Sequence[int], progress: Progress | None = None, seed: int = 0) -> list[Verdict]:
    """A verdict on every guarantee of a spec for groups of these sizes, in the order of the spec.

    verify(rewardspec.load("specs/papo/papo.yaml"), [2, 3]) = [<Verdict 'right answers above wrong ones': proved>, ...]

    progress: called with a group size, how many of its groups were tried, and how many there are. seed: of the groups
    that are drawn where there are too many. A KeyboardInterrupt ends the search early: what is known by then comes
    back, and the reason of what is open says "broken off". Raises SpecError.
    """
    question = Question.of(spec, eps=spec.declarations.eps, gaps=True)
    verdicts: dict[str, Verdict] = {}
    for name, node in question.program.guarantees.items():
        reason = question.undecidable(node)
        verdicts[name] = Verdict(name, UNDECIDED if reason else PROVED, reason=reason)
    asking: set[str] = set()
    ends: Counter[str] = Counter()
    try:
        for size in sizes:
            left = [name for name, verdict in verdicts.items() if verdict.status in (PROVED, NOT_REFUTED)]
            if not left:
                break
            for name, answer in question.ask(left, size, seed, progress).items():
                if answer.asks:
                    asking.add(name)
                ends[name] += answer.ends
                verdicts[name] = _after(verdicts[name], size, answer, question)
    except KeyboardInterrupt:
        for name, verdict in verdicts.items():
            if verdict.status in (PROVED, NOT_REFUTED) and verdict.sizes != tuple(sizes):
                verdicts[name] = replace(verdict, status=NOT_REFUTED, reason=BROKEN_OFF)
    for name, verdict in verdicts.items():
        if verdict.status == PROVED and verdict.groups:
            if ends[name]:
                verdicts[name] = replace(verdict, reason=ALL_END if ends[name] == verdict.groups else SOME_END)
            elif name not in asking:
                verdicts[name] = replace(verdict, reason=OF_NOTHING)
    return list(verdicts.values())


def _after(verdict: Verdict, size: int, answer: Answer, question: Question) -> Verdict:
    """The verdict with what groups of one more size say."""
    status, reason = verdict.status, verdict.reason
    if answer.broken is not None:
        status, reason = REFUTED, answer.reason
    elif answer.unsure:
        status, reason = NOT_REFUTED, TOO_CLOSE
    elif not answer.all:
        status, reason = NOT_REFUTED, question.why_not(size)
    sizes, groups = (*verdict.sizes, size), verdict.groups + answer.tried
    return Verdict(verdict.name, status, sizes, groups, reason, answer.broken)


@dataclass
class Question:
    """A spec as `verify` looks at it: its guarantees as nodes of a graph without the batch.

    gaps: whether what a closed gate lets be missing is tried as missing.
    """

    spec: Spec
    program: Program
    root: Node  # the advantage less the step over the batch
    step: str  # what that step may do: none, scale, shift
    most_tried: int = 16 * MOST_STATES  # rows of columns that are looked through for what one rollout can be
    gaps: bool = False

    @classmethod
    def of(
        cls, spec: Spec, most_tried: int = 16 * MOST_STATES, eps: Fraction = Fraction(0), gaps: bool = False
    ) -> Question:
        report = Report()
        with deep_stack():
            declared = replace(spec.declarations, given={**spec.declarations.given, "eps": eps})
            program = lower(declared, report, _told)
        if program is None:
            raise SpecError(report.sorted())
        root = _told(program.graph, program.advantage)
        return cls(spec, program, root, batch_step(program.graph, program.advantage), most_tried, gaps)

    def __post_init__(self):
        program = self.program
        shaped = [component.shaped for component in program.components]
        right = [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
        self.nodes = [self.root, *shaped, *program.guarantees.values(), *right]
        fine, coarse, complete = column_points(program, self.nodes, gaps=self.gaps)
        self.fine = {node: list(points) for node, points in fine.items()}
        self.coarse = {name: list(points) for name, points in coarse.items()}
        self.moments, self.all_moments = moments_of(self.nodes)
        self.complete = complete and self.all_moments
        self.intervals = not complete and any(n.domain.values is None for n in fine)

    def why_not(self, size: int) -> str:
        if self.intervals:
            return "some domains are intervals: searched, not exhausted"
        if not self.complete:
            return f"schedules were looked at in {len(self.moments)} moments"
        return f"too many groups of {size} to try them all"

    def undecidable(self, node: Node) -> str:
        """Why the rest of the batch could decide a guarantee; nothing where it cannot."""
        if any(over_batch(n) for n in walk([node, self.root])):
            return "it depends on the rest of the batch"
        if self.step != "none" and not _indifferent(self.program.graph, node, self.root, self.step):
            return "it depends on the scale that the step over the batch gives the advantage"
        return ""

    @cached_property
    def ends(self) -> Node | None:
        """Whether the run ends with an error on a group, as far as the group decides that."""
        graph = self.program.graph
        roots = [n for n in self.program.results if not any(over_batch(a) for a in walk([n]))]
        found = [check.bad for check in find_checks(graph, [self.root, *roots])]
        if self.step == "none" and self.root.domain.missing:  # an advantage that is missing is an error
            found.append(graph.negation(graph.present(self.root)))
        found = [graph.spread(bad) for bad in found if not any(over_batch(n) for n in walk([bad]))]
        return graph.any_of(found) if found else None

    # States --------------------------------------------------------------------------------------

    def states(self) -> tuple[list[tuple], bool]:
        """What one rollout can measure, and whether that is all: one of those that lead to the same values."""
        return self._states

    @cached_property
    def _states(self) -> tuple[list[tuple], bool]:
        points = list(self.fine.values())
        count = 1
        for values in points:
            count *= len(values)
        if count <= self.most_tried:
            rows, complete = list(product(*points)), True
        else:
            draw = random.Random(0)
            few = min(MOST_STATES, self.most_tried // 8)
            rows = list(zip(*(draw.choices(values, k=few) for values in points), strict=True))
            complete = False
        key = self._rollout_values(rows)
        if key is None:
            rows, complete = random.Random(0).sample(rows, min(FEW, len(rows))), False
            key = rows
        kept: dict = {}
        for row, values in zip(rows, key, strict=True):
            kept.setdefault(values, row)
        found = list(kept.values())
        if len(found) > MOST_STATES:
            return random.Random(0).sample(found, MOST_STATES), False
        return found, complete

    def _rollout_values(self, rows: list[tuple]) -> list[tuple] | None:
        """What of each rollout is ever asked for: the values of its own nodes, where the gates before them are open.

        None where it takes too much to find them.
        """
        allowance = Allowance()
        nodes = walk(self.nodes)
        own, users = of_rollout(nodes), users_of(nodes)
        ends = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, self.nodes)]
        asked = demand(self.program.graph, self.nodes, nodes)
        gates = {n: [[c for c in path if c in own] for path in asked[n]] for n in ends}
        wanted = list(dict.fromkeys([*ends, *(c for paths in gates.values() for path in paths for c in path)]))
        if any(n.op == "given" for n in walk(wanted)):
            return rows
        values: dict[Node, list] = {}
        number = [{v: i for i, v in enumerate(points)} for points in self.fine.values()]
        places = [tuple(map(dict.__getitem__, number, row)) for row in rows]  # whole numbers are soon told apart
        try:
            for n in wanted:
                read = [(at, c) for at, c in enumerate(self.fine) if c in walk([n])]
                of_each = [tuple(row[at] for at, _ in read) for row in places]
                first_of = dict(zip(reversed(of_each), reversed(rows), strict=True))
                kinds = [tuple(row[at] for at, _ in read) for row in first_of.values()]
                evaluate, found = GroupEvaluator(n, [c for _, c in read], {}, floats=False), []
                for first in range(0, len(kinds), FEW):
                    if allowance.is_spent:
                        return None
                    found += evaluate(kinds[first : first + FEW], {})
                value_of = dict(zip(first_of, found, strict=True))
                values[n] = [value_of[kind] for kind in of_each]
        except Inexact:
            return rows
        return [
            tuple(
                values[n][i] if any(all(values[c][i] == 1 for c in path) for path in gates[n]) else "never asked for"
                for n in ends
            )
            for i in range(len(rows))
        ]

    def groups(self, size: int, seed: int) -> tuple[list[tuple[tuple, dict, dict]], bool]:
        """(rollouts, columns of the group, moment) of all groups, or of as many as are tried; whether these are all."""
        states, _ = self.states()
        found, complete = self._places(size, seed)
        return [
            (tuple(states[i] for i in row), *kind) for kind, rows in zip(self.kinds, found, strict=True) for row in rows
        ], complete

    @cached_property
    def kinds(self) -> list[tuple[dict, dict]]:
        """Columns of group level, and moments, that groups can have."""
        return [
            (dict(zip(self.coarse, values, strict=True)), moment)
            for values in product(*self.coarse.values())
            for moment in self.moments
        ]

    def _places(self, size: int, seed: int) -> tuple[list[list[tuple[int, ...]]], bool]:
        """Groups as numbers of states, for each of the kinds, and whether these are all."""
        states, complete = self.states()
        count, kinds = comb(len(states) + size - 1, size), self.kinds
        most = min(MOST_GROUPS, MOST_VALUES // (size * len(walk(self.nodes))))
        if count * len(kinds) <= most:
            rows = list(combinations_with_replacement(range(len(states)), size))
            return [rows] * len(kinds), complete and self.complete
        draw = random.Random(seed)
        places = range(len(states))
        few = [tuple(draw.choices(draw.sample(places, min(3, len(states))), k=size)) for _ in range(MOST_GROUPS // 20)]
        many = [tuple(draw.choices(places, k=size)) for _ in range(MOST_GROUPS // 20)]
        found: list[list] = [[] for _ in kinds]
        for row in [*few, *many]:
            found[draw.randrange(len(kinds))].append(row)
        return found, False

    # Answers -------------------------------------------------------------------------------------

    def ask(self, names: Sequence[str], size: int, seed: int, progress: Progress | None = None) -> dict[str, Answer]:
        """What groups of a size say of each guarantee."""
        states, _ = self.states()
        places, complete = self._places(size, seed)
        answers = {name: Answer(all=complete) for name in names}
        open_groups: dict[str, list] = {name: [] for name in names}
        margins: dict[str, list] = {name: [] for name in names}
        whole, done = sum(map(len, places)), 0
        step = max(1, AT_ONCE // size)
        for kind, rows in zip(self.kinds, places, strict=True):
            for at in range(0, len(rows), step):
                some = rows[at : at + step]
                found = self._screened(names, some, size, kind)
                for name in names:
                    kept, asks, near = found[name]
                    answers[name].asks |= asks
                    answers[name].tried += len(some)
                    open_groups[name] += [(some[i], kind) for i in range(len(some)) if not kept[i]]
                    if near is not None:
                        order = sorted(range(len(some)), key=near.__getitem__)[:60]
                        margins[name] += [(near[i], (tuple(states[k] for k in some[i]), *kind)) for i in order]
                done += len(some)
                if progress is not None:
                    progress(size, done, whole)
        allowance = Allowance()
        for name in names:
            answer, node = answers[name], self.program.guarantees[name]
            suspects = sorted(open_groups[name], key=lambda g: len(set(g[0])))  # the plainest first
            most = max(100, MOST_EXACT // (size * len(walk([node]))))
            answer.all &= len(suspects) <= most
            for tried, (row, kind) in enumerate(suspects[:most]):
                if allowance.is_spent and tried >= 100:
                    answer.all = False
                    break
                group = (tuple(states[k] for k in row), *kind)
                status = self.decide(node, group)
                answer.unsure |= status == UNSURE
                answer.ends += status == ENDS
                if status == BROKEN:
                    answer.broken, answer.reason = self.counterexample(node, group), self._by_eps(name, group)
                    break
                if progress is not None and tried % 100 == 0:
                    progress(size, done, whole)
            if answer.broken is None and self.intervals:
                self._search(name, margins[name], size, seed, answer)
        return answers

    def decide(self, node: Node, group: tuple) -> str:
        """What a group does to a guarantee, in exact arithmetic."""
        members, columns, moment = group

        def values(n: Node) -> list:
            return self._evaluator(n, moment).values(members, columns)

        found = values(node)
        if not any(v is UNKNOWN or v == 0 for v in found):
            return KEPT
        ends = [] if self.ends is None else values(self.ends)
        if any(v is not UNKNOWN and v == 1 for v in ends):
            return ENDS
        if any(v is UNKNOWN for v in ends) or not any(v is not UNKNOWN and v == 0 for v in found):
            return UNSURE
        return BROKEN

    def _evaluator(self, node: Node, moment: dict) -> GroupEvaluator:
        """Evaluators are kept as long as they are asked about one moment: they know what groups have in common."""
        cache = self.__dict__.setdefault("_evaluators", {})
        key = (node, tuple(moment.items()))
        if key not in cache or len(cache[key].known) > MOST_GROUPS:
            cache[key] = GroupEvaluator(node, list(self.fine), moment)
        return cache[key]

    def _by_eps(self, name: str, group: tuple) -> str:
        """A word where eps is all that breaks a guarantee."""
        without = self.__dict__.setdefault("_without_eps", None)
        if without is None:
            if not self.spec.declarations.eps:
                return ""
            without = self.__dict__["_without_eps"] = Question.of(self.spec)
        names = [n.attributes[0] for n in self.fine]
        if any(n.attributes[0] not in names for n in without.fine):
            return ""
        at = [names.index(n.attributes[0]) for n in without.fine]
        members = tuple(tuple(m[i] for i in at) for m in group[0])
        return EPS_ALONE if without.decide(without.program.guarantees[name], (members, *group[1:])) == KEPT else ""

    # In floats, many groups at once --------------------------------------------------------------

    def _screened(self, names: Sequence[str], rows: list[tuple[int, ...]], size: int, kind: tuple) -> dict:
        """Of each guarantee: which groups surely keep it, whether it asks anything, how nearly each keeps it."""
        import numpy as np  # checking a spec looks at groups too, and has no need of it

        from rewardspec.prove.screen import Box  # it needs numpy

        columns, moment = kind
        place = np.array(rows).reshape(len(rows), size)
        start = {
            node: Box(*(None if a is None else a[place] for a in (b.lo, b.hi, b.gone, b.there, b.same)))
            for node, b in self._of_states(moment).items()
        }
        found = self._boxes([self.program.guarantees[name] for name in names], start, columns, moment, size)
        near = self._margins(names, start, columns, moment, size, len(rows)) if self.intervals else {}
        result = {}
        for name in names:
            b = found[self.program.guarantees[name]]
            kept = np.broadcast_to((b.lo >= 1) | ~b.there, (len(rows), size)).all(1)
            result[name] = kept.tolist(), self._asks(name, start, columns, moment, size), near.get(name)
        return result

    def _boxes(self, roots: list[Node], start: dict, columns: dict, moment: dict, size: int) -> dict[Node, Box]:
        from rewardspec.prove.screen import evaluate  # it needs numpy

        known = {"group_size": Fraction(size), "batch_size": Fraction(size), **moment}
        take = GroupEvaluator(roots[0], [], known)
        return evaluate(roots, start, columns, lambda name: take.take(name, size), size)

    def _of_states(self, moment: dict) -> dict[Node, Box]:
        """What each state is worth to the nodes that look at more than one rollout."""
        from rewardspec.prove.screen import box  # it needs numpy

        cache = self.__dict__.setdefault("_boxes_of_states", {})
        key = tuple(moment.items())
        if key not in cache:
            states, _ = self.states()
            roots = [*self.program.guarantees.values(), *self._conditions.values()]
            nodes = walk(roots)
            own, users = of_rollout(nodes), users_of(nodes)
            ends = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, roots)]
            columns = list(self.fine)
            cache[key] = {
                n: box([GroupEvaluator(n, columns, moment).values([state], {})[0] for state in states], same=True)
                for n in ends
            }
        return cache[key]

    @cached_property
    def _conditions(self) -> dict[str, Node]:
        """Of each guarantee its margin: below `NOTHING` where a group meets its condition."""
        graph = self.program.graph
        return {name: graph.spread(_margin(graph, node)) for name, node in self.program.guarantees.items()}

    def _asks(self, name: str, start: dict, columns: dict, moment: dict, size: int) -> bool:
        known = self.__dict__.setdefault("_known_to_ask", set())
        if name in known:
            return True
        margin = self._conditions[name]
        b = self._boxes([margin], start, columns, moment, size)[margin]
        if bool((b.there & (b.lo < NOTHING)).any()):
            known.add(name)
        return name in known

    def _margins(
        self, names, start: dict, columns: dict, moment: dict, size: int, count: int
    ) -> dict[str, list[float]]:
        """By how much each group keeps each guarantee, about."""
        import numpy as np

        nodes = [self._conditions[name] for name in names]
        found = self._boxes(nodes, start, columns, moment, size)
        result = {}
        for name, node in zip(names, nodes, strict=True):
            b = found[node]
            with np.errstate(invalid="ignore"):  # an enclosure without ends has no middle
                middle = np.where(b.there & ~b.gone, b.lo / 2 + b.hi / 2, inf)
            result[name] = np.nan_to_num(np.broadcast_to(middle, (count, size)), nan=inf).min(1).tolist()
        return result

    def _search(self, name: str, pool: list, size: int, seed: int, answer: Answer) -> None:
        """Local search from the groups that keep a guarantee least: columns with intervals are moved."""
        draw = random.Random(seed + size)
        nodes, node = list(self.fine), self.program.guarantees[name]
        moving = [i for i, n in enumerate(nodes) if n.domain.values is None]
        pool, reach = sorted(pool, key=lambda pair: pair[0])[:60], 0.5
        for _ in range(ROUNDS if moving else 0):
            fresh = []
            for _, (members, columns, moment) in pool:
                for _ in range(8):
                    moved = [list(m) for m in members]
                    for m in draw.sample(moved, draw.randint(1, min(3, size))):
                        at = draw.choice(moving)
                        m[at] = _moved(m[at], nodes[at].domain, reach, draw)
                    fresh.append((tuple(tuple(m) for m in moved), columns, moment))
            answer.tried += len(fresh)
            found = self._near(name, fresh, size)
            if found:
                best = min(range(len(found)), key=found.__getitem__)
                if found[best] < 0 and self.decide(node, fresh[best]) == BROKEN:
                    group = self._plainer(name, fresh[best])
                    answer.broken, answer.reason = self.counterexample(node, group), self._by_eps(name, group)
                    return
            pool = sorted([*pool, *zip(found, fresh, strict=True)], key=lambda pair: pair[0])[:60]
            reach *= 0.7

    def _near(self, name: str, groups: list, size: int) -> list[float]:
        """The margins of groups whose values are no states."""
        from rewardspec.prove.screen import Box, box  # it needs numpy

        result: list[float] = [inf] * len(groups)
        kinds: dict[tuple, list[int]] = {}
        for i, (_, columns, moment) in enumerate(groups):
            kinds.setdefault((tuple(columns.items()), tuple(moment.items())), []).append(i)
        for (columns, moment), places in kinds.items():
            start = {}
            for at, node in enumerate(self.fine):
                b = box([m[at] for i in places for m in groups[i][0]])
                start[node] = Box(*(a.reshape(len(places), size) for a in (b.lo, b.hi, b.gone, b.there)))
            found = self._margins([name], start, dict(columns), dict(moment), size, len(places))[name]
            for i, margin in zip(places, found, strict=True):
                result[i] = margin
        return result

    def _plainer(self, name: str, group: tuple) -> tuple:
        """A group that breaks a guarantee as well, with fewer digits."""
        node = self.program.guarantees[name]
        for digits in (0, 1, 2, 3):
            members = tuple(
                tuple(
                    v if v is None or n.domain.values is not None else Fraction(round(v, digits))
                    for n, v in zip(self.fine, m, strict=True)
                )
                for m in group[0]
            )
            inside = all(v is None or v in n.domain for m in members for n, v in zip(self.fine, m, strict=True))
            if inside and self.decide(node, (members, *group[1:])) == BROKEN:
                return members, *group[1:]
        return group

    # Counterexamples -----------------------------------------------------------------------------

    def counterexample(self, node: Node, group: tuple) -> Counterexample:
        members, columns, moment = group

        def values(n: Node) -> list[float | None]:
            found = self._evaluator(n, moment).values(members, columns)
            return [None if v is None or v is UNKNOWN else approximate(v) for v in found]

        shown = {n.attributes[0]: [_shown(m[i], n) for m in members] for i, n in enumerate(self.fine)}
        whole = {name: _shown(value, self._column_node(name)) for name, value in columns.items()}
        whole |= {name: float(value) for name, value in moment.items()}
        shaped = {c.name: values(c.shaped) for c in self.program.components}
        names = [n.attributes[0] for n in self.fine]
        for name, found in shaped.items():  # what a closed gate does not ask for might as well not be there
            for i, value in enumerate(found):
                if value is None and name in names:
                    fewer = self._without(node, group, i, names.index(name))
                    if fewer is not None:
                        shown[name][i], group = None, fewer
        return Counterexample(shown, whole, shaped, values(self.root), _breaking(node, values))

    def _without(self, node: Node, group: tuple, rollout: int, column: int) -> tuple | None:
        """A group with a value of a rollout missing, if it is the same to a guarantee and to the advantage."""
        members, columns, moment = group
        row = (*members[rollout][:column], None, *members[rollout][column + 1 :])
        without = (*members[:rollout], row, *members[rollout + 1 :])
        roots = [node, self.root, *(c.shaped for c in self.program.components), *filter(None, [self.ends])]
        try:
            same = all(
                self._evaluator(n, moment).values(members, columns)
                == self._evaluator(n, moment).values(without, columns)
                for n in roots
            )
        except Inexact:
            return None
        return (without, columns, moment) if same else None

    def _column_node(self, name: str) -> Node:
        return next(n for n in walk(self.nodes) if n.op == "column" and n.attributes[0] == name)


def _told(graph: Graph, advantage: Node) -> Node:
    """What a guarantee is told of the advantage: the step over the batch is left out, and so is how far it may go."""
    root, _ = without_batch(graph, advantage)
    if batch_step(graph, advantage) == "none":
        return root
    return graph.node("required", (root,), (), Level.ROLLOUT, interval(-inf, inf))


def _shown(value, node: Node):
    if value is None:
        return None
    return node.domain.symbols[int(value)] if node.domain.symbols else float(value)


def _moved(value, domain: Domain, reach: float, draw: random.Random) -> Fraction:
    """A value of an interval near `value`."""
    x = 0.0 if value is None else float(value)
    span = float(domain.hi - domain.lo) if domain.bounded else max(1.0, 2 * abs(x))
    x += draw.gauss(0, reach * span) if draw.random() < 0.9 else draw.uniform(-span, span)
    return Fraction(min(max(x, float(domain.lo)), float(domain.hi))).limit_denominator(10**6)


def moments_of(nodes: Sequence[Node]) -> tuple[list[dict], bool]:
    """Values of `step`, `progress` and `total_steps` to look at, and whether they stand for all."""
    order = walk(nodes)
    used = {
        n.attributes[0]: n for n in order if n.op == "given" and n.attributes[0] in ("step", "progress", "total_steps")
    }
    if not used:
        return [{}], True
    if set(used) == {"step"}:
        users = users_of(order)[used["step"]]
        limits = [a.constant for u in users for a in u.args if a is not used["step"]]
        if all(u.op in _COMPARISONS for u in users) and None not in limits:
            marks = sorted({Fraction(0), *(x + d for x in limits for d in (-1, 0, 1) if x + d >= 0)})
            return [{"step": mark} for mark in marks], True  # steps between two marks are compared alike
        limits = [x for x in limits if x is not None]
        marks = sorted({Fraction(0), Fraction(1), Fraction(1000), *(x for x in limits if x >= 0)})
        return [{"step": mark} for mark in marks], False
    total = Fraction(1000)
    return [{"step": p * total, "total_steps": total, "progress": p} for p in MOMENTS], False


# Margins -----------------------------------------------------------------------------------------


def _margin(graph: Graph, node: Node) -> Node:
    """A number that is above 0 where a condition holds and below 0 where it fails; 0 where it is close.

    Relative to the size of what is compared, so that one slack fits all. Missing where nothing is compared.
    """
    match node.op, node.args:
        case "not", (a,):
            return graph.apply("neg", _margin(graph, a))
        case "and", (a, b):
            return _both(graph, "minimum", _margin(graph, a), _margin(graph, b))
        case "or", (a, b):
            return _both(graph, "maximum", _margin(graph, a), _margin(graph, b))
        case "spread", (a,):
            return graph.spread(_margin(graph, a), node.level)
        case (("any" | "all"), (a, where, *by)) if not by:
            reduction = "max" if node.op == "any" else "min"
            empty = graph.const(-NOTHING if node.op == "any" else NOTHING)
            return graph.coalesce(graph.reduce(reduction, _margin(graph, a), where, None, *node.attributes), empty)
        case op, (a, b) if op in _COMPARISONS:
            gap = graph.apply("-", b, a) if _COMPARISONS[op] >= 0 else graph.apply("-", a, b)
            size = graph.apply("+", graph.apply("abs", a), graph.apply("abs", b))
            scale = graph.apply("maximum", size, graph.const(1))
            if op in ("==", "!="):
                gap = graph.apply("abs", gap)
                gap = gap if op == "!=" else graph.apply("neg", gap)
            return graph.apply("/", gap, scale)
    return graph.if_(node, graph.const(1), graph.const(-1))


def _both(graph: Graph, op: str, a: Node, b: Node) -> Node:
    """The lesser (or greater) of two margins, either of which may be missing."""
    return graph.coalesce(graph.apply(op, a, b), graph.coalesce(a, b))


def _breaking(node: Node, values: Callable[[Node], list]) -> list[int]:
    """Rollouts that a broken comparison looks at: where it fails, or where its least and greatest are."""
    found: Counter = Counter()
    for n in walk([node]):
        if n.op not in _COMPARISONS:
            continue
        if n.level is Level.ROLLOUT:
            continue
        for side in n.args:
            side = side.args[0] if side.op in ("spread", "neg") else side
            if side.op in ("min", "max"):
                x, where = values(side.args[0]), values(side.args[1])
                (end,) = set(values(side))
                found.update(i for i, v in enumerate(x) if v is not None and v == end and where[i] == 1)
    if not found:
        last = values(node)
        found.update(i for i, v in enumerate(last) if v == 0 and node.level is Level.ROLLOUT)
    return sorted(found)


# The batch ---------------------------------------------------------------------------------------


def _indifferent(graph: Graph, node: Node, root: Node, step: str) -> bool:
    """Whether a condition is the same when `root` is scaled by a positive number (and shifted)."""
    kinds: dict[Node, str | None] = {}
    for n in walk([node]):
        kinds[n] = _kind(n, root, step, kinds)
    return kinds[node] == "free"


def _kind(n: Node, root: Node, step: str, kinds: Mapping[Node, str | None]) -> str | None:
    """How a node goes with the advantage: free of it, "scaled" with it, "moved" (scaled and shifted), or None."""
    if n is root:
        return "scaled" if step == "scale" else "moved"
    inner = [kinds.get(a) for a in n.args]
    if all(k == "free" for k in inner):
        return "free"
    if None in inner:
        return None
    apart = {k for k in inner if k != "free"}
    kind = apart.pop() if len(apart) == 1 else None
    free = [a for a, k in zip(n.args, inner, strict=True) if k == "free"]
    if kind is None:
        return None
    if n.op in _COMPARISONS:
        zero = all(a.constant == 0 for a in free)
        return "free" if zero and (not free or kind == "scaled") else None
    if n.op in ("minimum", "maximum"):
        return kind if all(a.constant == 0 for a in free) and (not free or kind == "scaled") else None
    if n.op in REDUCTIONS and inner[0] == kind and all(k == "free" for k in inner[1:]):
        if n.op in ("min", "max", "mean", "quantile"):
            return kind
        if n.op in ("std", "std_others"):
            return "scaled"
        if n.op == "rank":
            return "free"
        return "scaled" if n.op == "sum" and kind == "scaled" else None
    if n.op == "present":
        return "free"
    if n.op in ("if", "coalesce", "spread", "required"):
        choices = inner[1:] if n.op == "if" else inner
        same = all(
            k == kind or (a.constant == 0 and kind == "scaled") or a.op == "missing"
            for a, k in zip(n.args[1:] if n.op == "if" else n.args, choices, strict=True)
        )
        return kind if same and (n.op != "if" or inner[0] == "free") else None
    if n.op == "-" and inner == [kind, kind]:
        return "scaled"
    if kind == "scaled":
        if n.op in ("+", "-", "sum_components") and not free:
            return kind
        if n.op in ("neg", "abs") or (n.op == "*" and len(free) == 1) or (n.op == "/" and inner[1] == "free"):
            return kind
        if n.op == "/" and inner == ["scaled", "scaled"]:
            return "free"
    return None
