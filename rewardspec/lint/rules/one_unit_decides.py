"""One token more or less has a full-size advantage.

Two rollouts are alike in all else, and a count such as their length differs by one. The reward made of it hardly
differs; but a z-score divides by what little spread there is, so the advantage is as large as that between right
and wrong. Groups in which every answer is right, the more of them the better the policy is, are then learnt from
as if the noise in their lengths meant something. Said of columns that count and have no end (`range: [0, .inf]`)
alone: what is close together in a score, or on a scale of judgement, is for its author to say. It follows from the
formula of the z-score.

```yaml
signals: {tokens: {range: [0, .inf]}}
components:
  correct: {values: [0, 1]}
  brief: {expr: "1 - min(tokens / 4000, 1)", when: correct >= 1}
advantage: gdpo
```

Count in steps that matter (`floor(tokens / 500) / 8`, `tokens <= 4000`); give the divisor a floor
(`center(brief) / max(std(brief), 0.1)`); or do not divide (`dr_grpo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import inf

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.lint.facts import Facts
from rewardspec.lint.registry import finding
from rewardspec.lint.small_groups import Group
from rewardspec.lint.words import words_of
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.numbers import format_number

LARGEST = 3.4e38  # what float32 holds
MOST_ROWS = 32
COUNTS = {"length", "len", "tokens", "words", "chars", "bytes", "lines", "steps", "turns", "calls", "seconds", "count"}


@finding("one-unit-decides", __doc__)
def one_unit_decides(facts: Facts) -> Iterator[Diagnostic]:
    endless = [n.attributes[0] for n in facts.question.fine if _counts_without_end(facts, n)]
    if not endless or facts.question.normalisation == "shift" or facts.depends_on_batch("one-unit-decides"):
        return
    facts = facts.with_eps  # which is a floor, too
    for at, node in enumerate(facts.question.fine):
        if node.attributes[0] not in endless:
            continue
        rows = [row for row in facts.question.states()[0] if row[at] is not None][:MOST_ROWS]
        rows += [(*row[:at], row[at] + far, *row[at + 1 :]) for row in rows for far in (100, 1000)]
        for row in sorted(rows, key=lambda row: -row[at]):  # a long answer shows it better than none at all
            more = (*row[:at], row[at] + 1, *row[at + 1 :])
            if row[at] not in node.domain or more[at] not in node.domain:
                continue
            columns = {name: points[0] for name, points in facts.question.coarse.items()}
            group = ((row, more), columns, facts.question.moments[0])
            advantages = _in_floats(facts, group)
            if None in advantages or not 1 <= abs(advantages[0] - advantages[1]) < LARGEST:
                continue
            name, changed = node.attributes[0], _changed(facts, group)
            if changed is not None:
                changed, apart = changed
                own = apart * _largest_weight(facts, changed) >= Fraction(1, 2)  # so that it is not the divisor
                listed = " and ".join(format_number(Fraction(r[at])) for r in (row, more))
                yield facts.warn(
                    "one-unit-decides",
                    f"{listed} `{name}`, alike in all else, get {advantages[0]:.3g} and {advantages[1]:.3g}",
                    facts.component_place(changed),
                    note=f"differs by {float(apart):.3g} for one of `{name}`"
                    if own
                    else f"hardly differs by one of `{name}`",
                    labels=() if own else (Label(facts.advantage_place(), "divides by what little spread there is"),),
                    help=f"count in steps that matter, `floor({name} / 500)`; or "
                    + (
                        f"hold it against a fixed length, `ramp({name}, start=0, end=4000)`"
                        if own
                        else "give the divisor a floor, `max(std(x), 0.1)`; or use `dr_grpo`"
                    ),
                )
                return


def _in_floats(facts: Facts, group: Group) -> list[float | None]:
    """The advantages of a group, where eps leaves them no exact value."""
    members, columns, moment = group
    rows = [tuple(None if v is None else float(v) for v in row) for row in members]
    return GroupEvaluator(facts.question.root, list(facts.question.fine), moment, floats=True)(rows, columns)


def _counts_without_end(facts: Facts, column: Node) -> bool:
    """Whether a column counts something, as tokens are counted, and not how good a rollout is.

    What is rewarded as it was measured is a score, unless its name is that of a count.
    """
    name, domain = column.attributes[0], column.domain
    if domain.values is not None or domain.bounded or domain.lo == -inf:
        return False
    return name not in facts.declared.components or bool(words_of(name) & COUNTS)


def _changed(facts: Facts, group: Group) -> tuple[str, Fraction] | None:
    """The component in which two rollouts differ, and by how much.

    None if one differs by over 1% of what it can, but for those that compare rollouts themselves (`minmax(tokens)`).
    """
    found = None
    for name, node in facts.shaped.items():
        values = facts.groups.shaped(name, group)
        if values is None or None in values:
            return None
        apart = abs(values[0] - values[1])
        far = node.domain.hi - node.domain.lo if node.domain.bounded else max(map(abs, values))
        compares = any(n.op in REDUCTIONS for n in walk([node]))
        if apart and apart > far / 100 and not compares:
            return None
        found = (name, apart) if apart else found
    return found


def _largest_weight(facts: Facts, name: str) -> Fraction | float:
    weight = next(c.weight for c in facts.program.components if c.name == name)
    return max(abs(weight.domain.lo), abs(weight.domain.hi))
