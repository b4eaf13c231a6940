"""One token more or less changes the advantage by its full size.

Two rollouts are equal except for a count, such as their length, which differs by one. The reward computed from it
hardly differs. But a z-score divides by the spread, which is just as small, so the advantage is as large as that
between right and wrong.

Groups in which every answer is right, which become more frequent as the policy improves, then teach the noise in their
lengths. Only counted columns without an upper end (`range: [0, .inf]`) are checked: scores close together can be
meant. In a list one item has one unit more.

```yaml
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  brief: {expr: "1 - min(tokens / 4000, 1)", when: correct >= 1}
advantage: gdpo
```

Count in coarser steps (`floor(tokens / 500) / 8`, `tokens <= 4000`), give the divisor a floor
(`center(brief) / max(std(brief), 0.1)`), or do not divide (`dr_grpo`).

It follows from the formula of the z-score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any

from rewardspec.groups.question import Group
from rewardspec.ir.exact import GroupEvaluator, Values, items_of, of_each
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat, shown_name, side_by_side
from rewardspec.lint.registry import finding
from rewardspec.lint.words import words_of
from rewardspec.ops.domain import Bound
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.numbers import format_number

LARGEST = 3.4e38  # of float32
MOST_ROWS = 32
RATIOS = {"speed", "speedup", "ratio", "rate", "score", "scores", "reward", "rewards", "return", "returns", "value"}
COUNTS = {"length", "len", "tokens", "words", "chars", "bytes", "lines", "steps", "turns", "calls", "seconds", "count"}


@finding("one-unit-decides", __doc__)
def one_unit_decides(facts: Facts) -> Iterator[Diagnostic]:
    endless = {n.attributes[0] for n in facts.question.fine if n.op == "column" and _counts_without_end(facts, n)}
    if not endless or facts.question.normalisation == "shift" or facts.depends_on_batch("one-unit-decides"):
        return
    facts = facts.with_eps  # eps is a floor of divisors, too
    for at, node in enumerate(facts.question.fine):
        if shown_name(node) in endless and (found := _decided(facts, at, node)) is not None:
            yield _warning(facts, node.attributes[0], found)
            return


@dataclass(frozen=True)
class Decided:
    """Two rollouts that differ by one in a count, and whose advantages differ by 1 or more.

    counts, advantages: of the two. component: the only one in which they differ. apart: by how much.
    """

    counts: tuple[Fraction, Fraction]
    advantages: tuple[float, float]
    component: str
    apart: Fraction


def _decided(facts: Facts, at: int, column: Node) -> Decided | None:
    """Two such rollouts, for the count in place `at` of a rollout. Large counts are tried first."""
    rows = [row for row in facts.question.states()[0] if _first(row[at]) is not None][:MOST_ROWS]
    known = [(row, count) for row in rows if (count := _first(row[at])) is not None]
    tried = known + [(row, count + far) for row, count in known for far in (100, 1000)]
    columns = {name: points[0] for name, points in facts.question.coarse.items()}
    for row, count in sorted(tried, key=lambda pair: -pair[1]):  # a long answer is a better example than an empty one
        if count not in column.domain or count + 1 not in column.domain:
            continue
        two = tuple((*row[:at], _with_first(row[at], value), *row[at + 1 :]) for value in (count, count + 1))
        group = Group(two, columns, facts.question.moments[0])
        first, second = _in_floats(facts, group)
        if first is None or second is None or not 1 <= abs(first - second) < LARGEST:
            continue
        changed = _changed(facts, group)
        if changed is not None:
            return Decided((count, count + 1), (first, second), *changed)
    return None


def _first(value: Values) -> Any:
    """A value of a rollout; that of the first item, or None, of a list."""
    return next(iter(items_of(value)), None)


def _with_first(value: Values, first: Fraction) -> Values:
    return (first, *value[1:]) if isinstance(value, tuple) else first


def _warning(facts: Facts, name: str, found: Decided) -> Diagnostic:
    # If the component itself differs by that much, the divisor is not the cause.
    own = found.apart * _largest_weight(facts, found.component) >= Fraction(1, 2)
    shown = " and ".join(format_number(count) for count in found.counts)
    return facts.warn(
        "one-unit-decides",
        f"{shown} `{name}` with all else equal get {found.advantages[0]:.3g} and {found.advantages[1]:.3g}",
        facts.component_place(found.component),
        note=f"differs by {float(found.apart):.3g} for one `{name}`" if own else f"hardly differs for one `{name}`",
        labels=() if own else (Label(facts.advantage_place(), "divides by the tiny spread"),),
        help=f"count in coarser steps, `floor({name} / 500)`; or "
        + (
            f"compare it with a fixed length, `ramp({name}, start=0, end=4000)`"
            if own
            else "give the divisor a floor, `max(std(x), 0.1)`" + "; or use `dr_grpo`" * facts.is_summed
        ),
    )


def _in_floats(facts: Facts, group: Group) -> list[float | None]:
    """The advantages of a group in floats: with eps they have no exact value."""
    members, columns, moment = group
    rows = [tuple(of_each(lambda v: None if v is None else float(v), v) for v in row) for row in members]
    found = GroupEvaluator(facts.question.root, list(facts.question.fine), moment, floats=True)(rows, columns)
    return [_first(value) for value in found]


def _counts_without_end(facts: Facts, column: Node) -> bool:
    """Whether a column is a count, such as tokens, and not a score.

    A column that is itself a component, or is called a ratio, is a score, unless its name says that it is a count.
    """
    name, domain = column.attributes[0], column.domain
    if domain.values is not None or domain.bounded or domain.lo == -inf or domain.ids:
        return False
    words = words_of(name)
    return bool(words & COUNTS) or not (name in facts.declared.components or words & RATIOS)


def _changed(facts: Facts, group: Group) -> tuple[str, Fraction] | None:
    """The component in which two rollouts differ, and the difference.

    None if a component differs by more than 1% of its range, except for those that compare rollouts themselves
    (`minmax(tokens)`).
    """
    found: tuple[str, Fraction] | None = None
    for name, node in facts.shaped.items():
        values = facts.groups.shaped(name, group)
        if values is None or None in flat(values):
            return None
        apart: Fraction = max((abs(a - b) for a, b in side_by_side(values[:1], values[1:])), default=Fraction(0))
        far = node.domain.hi - node.domain.lo if node.domain.bounded else max(map(abs, flat(values)), default=0)
        compares = any(n.op in REDUCTIONS for n in walk([node]))
        if apart and apart > far / 100 and not compares:
            return None
        found = (name, apart) if apart else found
    return found


def _largest_weight(facts: Facts, name: str) -> Bound:
    """The largest size that the weight of a component can have."""
    weight = next(c.weight for c in facts.program.components if c.name == name)
    return max(weight.domain.hi, -weight.domain.lo)
