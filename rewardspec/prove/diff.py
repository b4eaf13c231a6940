"""How two specs differ: their declarations, and the advantages of small groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb, prod
from typing import Any

from rewardspec.groups.blocks import Block
from rewardspec.groups.moments import Moment
from rewardspec.groups.points import ITEMS, Point
from rewardspec.groups.question import Question
from rewardspec.ir.exact import GroupEvaluator, items_of, of_each
from rewardspec.ir.node import Node, walk
from rewardspec.ops.domain import Level
from rewardspec.ops.effort import MOST_EFFORT, Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import sign
from rewardspec.prove.changes import Change, changes
from rewardspec.prove.schedule import times_read
from rewardspec.spec import Spec

MOST_COMPARED_GROUPS = 2000  # of one size
MOST_COMPARED_VALUES = 1_500_000  # exact values, in all groups of one size at all moments
MOST_DRAWN_VALUES = 300_000  # exact values, in groups drawn at random, which prove nothing

Shown = float | None | list[float | None]  # of list level a list
Row = tuple[dict[str, Shown], Shown, Shown]  # a rollout's columns, its advantage before and after
Points = dict[str, list[Point]]  # columns, by name
Rollouts = tuple[tuple[Any, ...], ...]  # of a group, each the values of all columns
Advantages = list[Any]


@dataclass(frozen=True)
class SizeDifference:
    """What changes in groups of one size: in `changed` of `groups` the advantages differ at some moment of the run.

    signs: groups in which the advantage of a rollout changes sign. died, revived: groups whose advantages lose their
    spread, or gain one; both of groups that raise an error in neither spec. example: the first group that changes, a
    row for each rollout, None for an advantage that is undefined. moment: when it changes.
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
    items: the most items of a list in the groups that were compared; None if the specs read no list.
    """

    changes: list[Change]
    sizes: list[SizeDifference]
    moments: int = 1
    left_out: list[str] = field(default_factory=list)
    items: int | None = None

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


def difference(before: Spec, after: Spec, sizes: Sequence[int] = (2, 3), items: int = ITEMS) -> Difference:
    """How `after` differs from `before`: declarations, and the advantages of groups of these sizes.

    Advantages are compared before the batch's normalisation, with eps 0. items: the most items of a list.
    """
    largest = max(sizes, default=1)
    questions = (
        Question.of(before, largest=largest, items=items),
        Question.of(after, largest=largest, items=items),
    )
    moments, all_moments = _moments(questions)
    shown = times_read(before) | times_read(after)
    evaluators = [[GroupEvaluator(q.root, list(q.fine), moment) for q in questions] for moment in moments]
    ids = _ids(questions, largest, items)
    columns = Columns.of(questions, ids, items)
    left_out = dict.fromkeys(["some domains are intervals"] if any(q.intervals or q.sampled for q in questions) else [])
    most = items if any(q.lists for q in questions) else None
    if most is not None:
        left_out[f"lists of more than {most} items"] = None
    if columns.unlike:
        left_out[f"{columns.unlike} has values of another level, so no group was compared"] = None
        return Difference(changes(before, after), [], len(moments), list(left_out), most)
    if len(of := {q.root.level: None for q in questions if q.root.level.listed}) > 1:
        one, other = of
        left_out[f"one has an advantage for each {one}, the other for each {other}, so no group was compared"] = None
        return Difference(changes(before, after), [], len(moments), list(left_out), most)
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
                found.append((moment, *_of_one_level(a, b)))
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
                defined = [(a, b) for _, a, b in changed if not _is_undefined(a) and not _is_undefined(b)]
                if len(defined) < len(changed):
                    left_out["signs and signal of groups that raise an error"] = None
                of_each_item = [pair for a, b in defined for pair in zip(_items(a), _items(b), strict=True)]
                signs = any(sign(x) * sign(y) < 0 for x, y in of_each_item)
                alive = [(_has_spread(a), _has_spread(b)) for a, b in defined]
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
                    (_floats(dict(zip(columns.names, m, strict=True)) | coarse), _float(x), _float(y))
                    for m, x, y in zip(members, a, b, strict=True)
                ]
        if not is_all:
            left_out[f"{len(groups):,} groups of {size} were drawn at random"] = None
        return SizeDifference(size, **counts, example=example, moment=when)

    found = [of_size(size) for size in sizes]
    return Difference(changes(before, after), found, len(moments), list(left_out), most)


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


@dataclass(frozen=True)
class Columns:
    """The columns that either spec reads. names: in the order of a rollout's values. blocks: of these, in order.

    unlike: a column that has another level in the other spec; empty if there is none.
    """

    names: list[str]
    blocks: list[Block]
    unlike: str

    @classmethod
    def of(cls, questions: tuple[Question, Question], ids: Points, items: int) -> Columns:
        points: Points = {}
        levels: dict[str, Level] = {}
        unlike = ""
        for node, own in (pair for question in questions for pair in question.fine.items()):
            name = _name(node)
            known = points.setdefault(name, [])
            known += [p for p in own if p not in known]
            if levels.setdefault(name, node.level) is not node.level:
                unlike = f"`{name}`"
        points |= {name: found for name, found in ids.items() if name in points}
        names = [name for name, level in levels.items() if not level.listed]
        blocks = [Block((), (dict.fromkeys(points[name], 1.0),)) for name in names]
        for level in sorted({level for level in levels.values() if level.listed}, key=str):
            own_names = [name for name, of in levels.items() if of is level and name != _places(level)]
            blocks.append(Block((), tuple(dict.fromkeys(points[name], 1.0) for name in own_names), items))
            names += [*own_names, _places(level)]
        return cls(names, blocks, unlike)


def _name(node: Node) -> str:
    return _places(node.level) if node.op == "position" else str(node.attributes[0])


def _places(level: Level) -> str:
    return f"places of {level}"


def _ids(questions: tuple[Question, Question], size: int, items: int) -> Points:
    """The points of the ids that a spec reads: enough for all of them to differ, whichever of them are compared."""
    found: dict[str, Node] = {}
    for question in questions:
        found |= {n.attributes[0]: n for n in walk(question.nodes) if n.op == "column" and n.domain.ids}
    own = {n: size * (items if n.level.listed else 1) if n.level >= Level.ROLLOUT else 1 for n in found.values()}
    count = sum(own.values())
    missing: list[Point] = [None]
    return {name: [*map(Fraction, range(count)), *missing * n.domain.missing] for name, n in found.items()}


def _floats(values: dict[str, Any]) -> dict[str, Shown]:
    return {name: _float(value) for name, value in values.items() if not name.startswith("places of ")}


def _float(value: Any) -> Shown:
    if isinstance(value, tuple):
        return [None if v is None else float(v) for v in value]
    return None if value is None else float(value)


def _of_one_level(a: Advantages, b: Advantages) -> tuple[Advantages, Advantages]:
    """Advantages, with a value for each item if one of the specs has that."""
    pairs = [
        (x, y)
        if isinstance(x, tuple) is isinstance(y, tuple)
        else (x, (y,) * len(x))
        if isinstance(x, tuple)
        else ((x,) * len(y), y)
        for x, y in zip(a, b, strict=True)
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _items(advantages: Advantages) -> list[Any]:
    return [v for value in advantages for v in items_of(value)]


def _groups(
    columns: Columns, questions: tuple[Question, Question], ids: Points, size: int, work: int
) -> tuple[list[tuple[Rollouts, dict[str, Point]]], bool]:
    """The groups to compare, over all columns that either spec reads, and whether these are all.

    work: how many values are computed for a group.
    """
    coarse: Points = {}
    for question in questions:
        for name, points in question.coarse.items():
            coarse[name] = ids.get(name) or list(dict.fromkeys([*coarse.get(name, []), *points]))
    states = prod(block.count for block in columns.blocks)
    if comb(states + size - 1, size) * prod(map(len, coarse.values())) <= min(
        MOST_COMPARED_GROUPS, MOST_COMPARED_VALUES // work
    ):
        joints = ([joint for joint, _ in block.all()] for block in columns.blocks)
        rows = [tuple(v for part in parts for v in part) for parts in product(*joints)]
        kinds = [dict(zip(coarse, values, strict=True)) for values in product(*coarse.values())]
        return [(m, kind) for kind in kinds for m in combinations_with_replacement(rows, size)], True
    draw = random.Random(0)
    most = min(MOST_COMPARED_GROUPS, max(MOST_DRAWN_VALUES // work, 1))
    drawn = []
    for _ in range(most):
        members = tuple(_drawn(columns, draw) for _ in range(size))
        drawn.append((members, {name: draw.choice(points) for name, points in coarse.items()}))
    return drawn, False


def _drawn(columns: Columns, draw: random.Random) -> tuple[Any, ...]:
    """The values of one rollout, drawn at random."""
    row: list[Any] = []
    for block in columns.blocks:
        row += block.drawn(draw, 1, evenly=True)[0] if block.items is not None else [draw.choice(list(block.odds[0]))]
    return tuple(row)


def _allows(question: Question, columns: Columns, members: Rollouts, coarse: dict[str, Point]) -> bool:
    """Whether the values of a group lie in the spec's domains."""
    for node in question.fine:
        at = columns.names.index(_name(node))
        values: list[Any] = [value for m in members for value in items_of(m[at])]
        if any(value is not None and value not in node.domain for value in values):
            return False
    given = question.program.column
    return all(coarse[name] in points or given(name).domain.ids for name, points in question.coarse.items())


def _advantages(
    question: Question, evaluate: GroupEvaluator, columns: Columns, members: Rollouts, coarse: dict[str, Point]
) -> Advantages | None:
    """The advantages of a group, all None if one is undefined, which raises an error; None if they are not exact."""
    at = [columns.names.index(_name(n)) for n in question.fine]
    rows = [tuple(m[i] for i in at) for m in members]
    try:
        found = evaluate(rows, coarse)
    except Inexact:
        return None
    return [of_each(lambda _: None, value) for value in found] if _is_undefined(found) else found


def _is_undefined(advantages: Advantages) -> bool:
    return any(value is None for value in _items(advantages))


def _has_spread(advantages: Advantages) -> bool:
    """Whether the advantages differ. Raises Inexact."""
    values = _items(advantages)
    return any(x != values[0] for x in values)
