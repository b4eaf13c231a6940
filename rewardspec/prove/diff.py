"""How two specs differ in meaning: what they say, and what becomes of small groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb, prod
from pathlib import Path
from typing import TYPE_CHECKING

from rewardspec.groups.question import Question
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.node import walk
from rewardspec.language.declarations import Column
from rewardspec.logs.columns import PREFIX
from rewardspec.ops.effort import MOST_EFFORT, Allowance
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import sign
from rewardspec.prove.replay import Log, by_step, read_log
from rewardspec.prove.schedule import needs
from rewardspec.spec import Spec
from rewardspec.syntax.tree import format_expr

if TYPE_CHECKING:
    import numpy as np

MOST_GROUPS = 2000  # of one size
MOST_WORK = 1_500_000  # values found exactly, in all groups of one size at all moments
MOST_DRAWN = 300_000  # values found exactly in groups that are drawn, which prove nothing
SAME = 1e-5  # of advantages on a log, which are computed in float32


Row = tuple[dict[str, object], float, float]  # a rollout's columns, its advantage before and after


@dataclass(frozen=True)
class Change:
    """One thing that two specs say differently; None where one says nothing."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class SizeDifference:
    """What changes in groups of one size: `changed` of `groups` have another advantage at some moment of the run.

    signs: groups in which some rollout's advantage changes its sign. died, revived: groups whose advantage loses its
    spread, or gets one. example: the first group that changes, a row for each rollout. moment: when it changes.
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
    """How two specs differ: what they say, and the advantages of small groups.

    moments: how many moments of the run were looked at. left_out: why not everything was compared; empty if it was.
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
        """Whether all groups of these sizes were looked at, at all moments, in exact arithmetic."""
        return not self.left_out

    @property
    def is_none(self) -> bool:
        """Whether the specs are the same in all that was compared."""
        return not self.changes and not any(s.changed for s in self.sizes)

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"exact": self.exact}


def difference(before: Spec, after: Spec, sizes: Sequence[int] = (2, 3)) -> Difference:
    """How `after` differs from `before`: what they say, and the advantages of groups of these sizes.

    Advantages are compared before the batch's normalisation, with eps 0.
    """
    questions = Question.of(before), Question.of(after)
    moments, all_moments = _moments(questions)
    shown = needs(before) | needs(after)
    evaluators = [[GroupEvaluator(q.root, list(q.fine), moment) for q in questions] for moment in moments]
    columns: dict[str, list] = {}
    for question in questions:
        for node, points in question.fine.items():
            known = columns.setdefault(node.attributes[0], [])
            known += [p for p in points if p not in known]
    left_out = dict.fromkeys(["some domains are intervals"] if any(q.intervals for q in questions) else [])
    if not all_moments:
        left_out[f"schedules were looked at in {len(moments)} moments"] = None

    def compared(members: tuple, coarse: dict) -> list[tuple[dict, list, list]]:
        """The moments at which both specs give a group exact advantages, with these."""
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
        example, when = [], {}
        work = sum(len(walk([q.root])) for q in questions) * size * len(moments)
        allowance = Allowance(MOST_EFFORT // len(sizes))
        groups, is_all = _groups(columns, questions, size, work)
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
            left_out[f"{len(groups):,} groups of {size} were drawn"] = None
        return SizeDifference(size, **counts, example=example, moment=when)

    found = [of_size(size) for size in sizes]
    return Difference(_changes(before, after), found, len(moments), list(left_out))


def _moments(questions: tuple[Question, Question]) -> tuple[list[dict], bool]:
    """The moments at which `verify` looks at either spec, and whether they stand for all."""
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


# On a log ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Logged:
    """What changes in the rollouts of a log, the batch's normalisation included.

    changed: rollouts whose advantage changes. signs: those whose advantage changes its sign. groups_changed: groups
    with a rollout that changes. died, revived: groups whose advantage loses its spread, or gets one. moved: the mean
    magnitude of the change. example: the group that changes most, a row for each rollout.
    """

    rollouts: int
    groups: int
    steps: int
    changed: int
    signs: int
    groups_changed: int
    died: int
    revived: int
    moved: float
    example: list[Row]


@dataclass(frozen=True)
class LogDifference:
    """How two specs differ: what they say, and the advantages of the rollouts of a log."""

    changes: list[Change]
    logged: Logged

    def __repr__(self) -> str:
        return (
            f"<LogDifference: {len(self.changes)} changes; "
            f"other advantages for {self.logged.changed} of {self.logged.rollouts} rollouts>"
        )

    @property
    def is_none(self) -> bool:
        """Whether the specs are the same in all that was compared."""
        return not self.changes and not self.logged.changed

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def difference_on_log(
    before: Spec,
    after: Spec,
    path: Path,
    group_by: str | None = None,
    total_steps: int | None = None,
    prefix: str = PREFIX,
) -> LogDifference:
    """How `after` differs from `before` on the rollouts of a log. Raises BadLog, OSError.

    Advantages that agree to a relative 1e-5 are the same.
    """
    import numpy as np

    logs = [read_log(path, spec, group_by, prefix) for spec in (before, after)]
    a, b = (advantages_on(spec, log, total_steps) for spec, log in zip((before, after), logs, strict=True))
    close = SAME * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
    changed = np.abs(a - b) > close
    rows_of: dict = {}
    for i, group in enumerate(logs[0].groups):
        rows_of.setdefault(group, []).append(i)
    alive = [[bool(np.ptp(x[rows]) > close[rows].max()) for rows in rows_of.values()] for x in (a, b)]
    columns = logs[0].columns | logs[1].columns
    most = max(rows_of.values(), key=lambda rows: np.abs(a - b)[rows].max())
    logged = Logged(
        rollouts=len(a),
        groups=len(rows_of),
        steps=len(dict.fromkeys(logs[0].steps)),
        changed=int(changed.sum()),
        signs=int((changed & (a * b < 0)).sum()),
        groups_changed=sum(bool(changed[rows].any()) for rows in rows_of.values()),
        died=sum(x and not y for x, y in zip(*alive, strict=True)),
        revived=sum(y and not x for x, y in zip(*alive, strict=True)),
        moved=float(np.abs(a - b).mean()),
        example=[({n: v[i] for n, v in columns.items()}, float(a[i]), float(b[i])) for i in most]
        if changed.any()
        else [],
    )
    return LogDifference(_changes(before, after), logged)


def advantages_on(spec: Spec, log: Log, total_steps: int | None = None) -> np.ndarray:
    """The advantage of every rollout of a log, [N], each step of the log a batch of its own. Raises BadLog."""
    import numpy as np

    found = np.empty(len(log.steps))
    for rows, out in by_step(spec, log, total_steps):
        found[rows] = out.advantages.double().numpy()
    return found


def _floats(values: dict) -> dict:
    return {name: None if value is None else float(value) for name, value in values.items()}


def _groups(columns: dict[str, list], questions: tuple[Question, Question], size: int, work: int):
    """Groups of every value of every column that either spec reads, or as many as are looked at; and whether all.

    work: how many values are found for a group.
    """
    coarse: dict[str, list] = {}
    for question in questions:
        for name, points in question.coarse.items():
            coarse[name] = list(dict.fromkeys([*coarse.get(name, []), *points]))
    states = prod(map(len, columns.values()))
    if comb(states + size - 1, size) * prod(map(len, coarse.values())) <= min(MOST_GROUPS, MOST_WORK // work):
        rows = list(product(*columns.values()))
        kinds = [dict(zip(coarse, values, strict=True)) for values in product(*coarse.values())]
        return [(m, kind) for kind in kinds for m in combinations_with_replacement(rows, size)], True
    draw = random.Random(0)
    one = lambda: tuple(draw.choice(points) for points in columns.values())  # noqa: E731
    kind = lambda: {name: draw.choice(points) for name, points in coarse.items()}  # noqa: E731
    most = min(MOST_GROUPS, max(MOST_DRAWN // work, 1))
    return [(tuple(one() for _ in range(size)), kind()) for _ in range(most)], False


def _allows(question: Question, columns: dict[str, list], members: tuple, coarse: dict) -> bool:
    """Whether a spec's domains hold the values of a group."""
    names = list(columns)
    for node in question.fine:
        at = names.index(node.attributes[0])
        if any(m[at] is not None and m[at] not in node.domain for m in members):
            return False
    return all(coarse[name] in points for name, points in question.coarse.items())


def _advantages(question: Question, evaluate, columns: dict[str, list], members: tuple, coarse: dict) -> list | None:
    """The advantages of a group; None where they are not exact."""
    names = list(columns)
    rows = [tuple(m[names.index(n.attributes[0])] for n in question.fine) for m in members]
    try:
        return evaluate(rows, coarse)
    except Inexact:
        return None


def _has_spread(advantages: list) -> bool:
    """Whether they differ. Raises Inexact."""
    return any(x != advantages[0] for x in advantages)


def _changes(before: Spec, after: Spec) -> list[Change]:
    a, b = _said(before), _said(after)
    found = [Change(key, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)]
    if not found and before.fingerprint != after.fingerprint:  # no list of places is sure to be whole
        found.append(Change("what they come down to", before.fingerprint, after.fingerprint))
    return found


def _said(spec: Spec) -> dict[str, str]:
    """What a spec says, by place: columns with their domains, expressions as the language writes them."""
    declared = spec.declarations
    found = {f"column {c.name}": _column(c) for c in declared.columns.values()}
    found |= {f"measured by, {name}": str(use) for name, use in declared.uses.items()}
    for name, component in declared.components.items():
        found[f"component {name}"] = format_expr(component.value)
        found[f"weight of {name}"] = format_expr(component.weight)
    found |= {d.signature.span.text: format_expr(d.body) for d in declared.values.values() if d.body is not None}
    found |= {d.signature.span.text: format_expr(d.body) for d in declared.functions.values() if d.body is not None}
    for key in ("outcome", "keep", "refill", "advantage"):
        expr = getattr(declared, key)
        if expr is not None:
            found[key] = format_expr(expr)
    found |= {"eps": str(float(declared.eps)), "ddof": str(declared.ddof)}
    found |= {f"guarantee {name}": format_expr(expr) for name, expr in declared.guarantees.items()}
    tokens = declared.reward_tokens
    if tokens is not None:
        found["condition"] = f"{tokens.tokens} {tokens.prior} {tokens.template}"
        found |= {f"label {name} of the condition": format_expr(expr) for name, expr in tokens.labels.items()}
    return found


def _column(column: Column) -> str:
    """What is declared of a column, and what becomes of values that are not as declared."""
    words = [f"{column.level} {column.domain}", f"missing: {column.missing}"]
    return ", ".join([*words, *(["outside: clip"] if column.clip else [])])
