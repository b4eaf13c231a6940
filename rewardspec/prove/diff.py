"""How two specs differ: their declarations, and the advantages of small groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb, prod

from rewardspec.groups.moments import Moment
from rewardspec.groups.points import Point
from rewardspec.groups.question import Question
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import MOST_EFFORT, Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import Number, sign
from rewardspec.prove.changes import Change, changes
from rewardspec.prove.schedule import times_read
from rewardspec.spec import Spec

MOST_COMPARED_GROUPS = 2000  # of one size
MOST_COMPARED_VALUES = 1_500_000  # exact values, in all groups of one size at all moments
MOST_DRAWN_VALUES = 300_000  # exact values, in groups drawn at random, which prove nothing

Row = tuple[dict[str, float | None], float, float]  # a rollout's columns, its advantage before and after
Points = dict[str, list[Point]]  # columns, by name
Rollouts = tuple[tuple[Point, ...], ...]  # of a group, each the values of all columns
Advantages = list[Number]


@dataclass(frozen=True)
class SizeDifference:
    """What changes in groups of one size: in `changed` of `groups` the advantages differ at some moment of the run.

    signs: groups in which the advantage of a rollout changes sign. died, revived: groups whose advantages lose their
    spread, or gain one. example: the first group that changes, a row for each rollout. moment: when it changes.
    """

    size: int
    groups: int = 0
    changed: int = 0
    signs: int = 0
    died: int = 0
    revived: int = 0
    example: list[Row] = field(default_factory=list)
    moment: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """How two specs differ: their declarations, and the advantages of small groups.

    moments: how many moments of the run were compared. left_out: why not everything was compared; empty if it was.
    """

    changes: list[Change]
    sizes: list[SizeDifference]
    moments: int = 1
    left_out: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{s.changed} of {s.groups} groups of {s.size}" for s in self.sizes)
        return f"<Difference: {len(self.changes)} changes; other advantages in {sizes}>"

    @property
    def exact(self) -> bool:
        """Whether all groups of these sizes were compared, at all moments, in exact arithmetic."""
        return not self.left_out

    @property
    def is_none(self) -> bool:
        """Whether no difference was found."""
        return not self.changes and not any(s.changed for s in self.sizes)

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"exact": self.exact}


def difference(before: Spec, after: Spec, sizes: Sequence[int] = (2, 3)) -> Difference:
    """How `after` differs from `before`: declarations, and the advantages of groups of these sizes.

    Advantages are compared before the batch's normalisation, with eps 0.
    """
    largest = max(sizes, default=1)
    questions = Question.of(before, largest=largest), Question.of(after, largest=largest)
    moments, all_moments = _moments(questions)
    shown = times_read(before) | times_read(after)
    evaluators = [[GroupEvaluator(q.root, list(q.fine), moment) for q in questions] for moment in moments]
    columns: Points = {}
    for question in questions:
        for node, points in question.fine.items():
            known = columns.setdefault(node.attributes[0], [])
            known += [p for p in points if p not in known]
    ids = _ids(questions, largest)
    columns |= {name: points for name, points in ids.items() if name in columns}
    left_out = dict.fromkeys(["some domains are intervals"] if any(q.intervals or q.sampled for q in questions) else [])
    if not all_moments:
        left_out[f"schedules were compared at {len(moments)} moments only"] = None

    def compared(members: Rollouts, coarse: dict[str, Point]) -> list[tuple[Moment, Advantages, Advantages]]:
        """(moment, advantages before, advantages after), for the moments at which both are exact."""
        found = []
        for moment, pair in zip(moments, evaluators, strict=True):
            a, b = (
                _advantages(q, evaluate, columns, members, coarse) for q, evaluate in zip(questions, pair, strict=True)
            )
            if a is None or b is None:
                left_out["some values are not exact"] = None
            else:
                found.append((moment, a, b))
        return found

    def of_size(size: int) -> SizeDifference:
        counts: Counter[str] = Counter()
        example: list[Row] = []
        when: dict[str, float] = {}
        work = sum(len(walk([q.root])) for q in questions) * size * len(moments)
        allowance = Allowance(MOST_EFFORT // len(sizes))
        groups, is_all = _groups(columns, questions, ids, size, work)
        for looked_at, (members, coarse) in enumerate(groups):
            if allowance.is_spent:
                groups, is_all = groups[:looked_at], False
                break
            if not all(_allows(question, columns, members, coarse) for question in questions):
                left_out["only one of the specs allows some groups"] = None
                continue
            pairs = compared(members, coarse)
            counts["groups"] += bool(pairs)
            try:
                changed = [(moment, a, b) for moment, a, b in pairs if a != b]
                signs = any(sign(x) * sign(y) < 0 for _, a, b in changed for x, y in zip(a, b, strict=True))
                alive = [(_has_spread(a), _has_spread(b)) for _, a, b in changed]
            except Inexact:
                left_out["some values are too close to call"] = None
                continue
            if not changed:
                continue
            counts["changed"] += 1
            counts["signs"] += signs
            counts["died"] += (True, False) in alive
            counts["revived"] += (False, True) in alive
            if not example:
                moment, a, b = changed[0]
                when = {name: float(value) for name, value in moment.items() if name in shown}
                example = [
                    (_floats(dict(zip(columns, m, strict=True)) | coarse), float(x), float(y))
                    for m, x, y in zip(members, a, b, strict=True)
                ]
        if not is_all:
            left_out[f"{len(groups):,} groups of {size} were drawn at random"] = None
        return SizeDifference(size, **counts, example=example, moment=when)

    found = [of_size(size) for size in sizes]
    return Difference(changes(before, after), found, len(moments), list(left_out))


def _moments(questions: tuple[Question, Question]) -> tuple[list[Moment], bool]:
    """The moments to compare at, those of both questions, and whether they represent the whole run."""
    found = [moment for question in questions for moment in question.moments if moment] or [{}]
    if any("progress" in moment for moment in found):
        total = next(moment["total_steps"] for moment in found if "progress" in moment)
        found = [
            {"step": moment["step"], "total_steps": total, "progress": min(moment["step"] / total, Fraction(1))}
            for moment in found
        ]
    found.sort(key=lambda moment: moment.get("step", 0))
    once = [moment for i, moment in enumerate(found) if moment not in found[:i]]
    return once, all(question.all_moments for question in questions)


def _ids(questions: tuple[Question, Question], size: int) -> Points:
    """The points of the ids that a spec reads: enough for all of them to differ, whichever of them are compared."""
    found: dict[str, Node] = {}
    for question in questions:
        found |= {n.attributes[0]: n for n in walk(question.nodes) if n.op == "column" and n.domain.ids}
    count = sum(size if n.level >= Level.ROLLOUT else 1 for n in found.values())
    missing: list[Point] = [None]
    return {name: [*map(Fraction, range(count)), *missing * n.domain.missing] for name, n in found.items()}


def _floats(values: dict[str, Point]) -> dict[str, float | None]:
    return {name: None if value is None else float(value) for name, value in values.items()}


def _groups(
    columns: Points, questions: tuple[Question, Question], ids: Points, size: int, work: int
) -> tuple[list[tuple[Rollouts, dict[str, Point]]], bool]:
    """The groups to compare, over all columns that either spec reads, and whether these are all.

    work: how many values are computed for a group.
    """
    coarse: Points = {}
    for question in questions:
        for name, points in question.coarse.items():
            coarse[name] = ids.get(name) or list(dict.fromkeys([*coarse.get(name, []), *points]))
    states = prod(map(len, columns.values()))
    if comb(states + size - 1, size) * prod(map(len, coarse.values())) <= min(
        MOST_COMPARED_GROUPS, MOST_COMPARED_VALUES // work
    ):
        rows = list(product(*columns.values()))
        kinds = [dict(zip(coarse, values, strict=True)) for values in product(*coarse.values())]
        return [(m, kind) for kind in kinds for m in combinations_with_replacement(rows, size)], True
    draw = random.Random(0)
    most = min(MOST_COMPARED_GROUPS, max(MOST_DRAWN_VALUES // work, 1))
    drawn = []
    for _ in range(most):
        members = tuple(tuple(draw.choice(points) for points in columns.values()) for _ in range(size))
        drawn.append((members, {name: draw.choice(points) for name, points in coarse.items()}))
    return drawn, False


def _allows(question: Question, columns: Points, members: Rollouts, coarse: dict[str, Point]) -> bool:
    """Whether the values of a group lie in the spec's domains."""
    names = list(columns)
    for node in question.fine:
        at = names.index(node.attributes[0])
        if any((value := m[at]) is not None and value not in node.domain for m in members):
            return False
    given = question.program.column
    return all(coarse[name] in points or given(name).domain.ids for name, points in question.coarse.items())


def _advantages(
    question: Question, evaluate: GroupEvaluator, columns: Points, members: Rollouts, coarse: dict[str, Point]
) -> Advantages | None:
    """The advantages of a group; None if they are not exact."""
    names = list(columns)
    rows = [tuple(m[names.index(n.attributes[0])] for n in question.fine) for m in members]
    try:
        return evaluate(rows, coarse)
    except Inexact:
        return None


def _has_spread(advantages: Advantages) -> bool:
    """Whether the advantages differ. Raises Inexact."""
    return any(x != advantages[0] for x in advantages)
