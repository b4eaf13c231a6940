"""Summing before normalising makes different groups indistinguishable.

The rewards are summed and the sum is normalised, so groups with different rewards get the same advantages. With two
binary rewards and four rollouts GRPO leaves 7 distinct groups of advantages. Normalising each reward first leaves 14.

```yaml
components: {correct: {values: [0, 1]}, format: {values: [0, 1]}}
advantage: grpo
```

Groups with lists inside rollouts are counted for lists of up to two items, or `--items`.

`advantage: gdpo` keeps them distinct; `rewardspec simulate SPEC -g 4 --advantage grpo --advantage gdpo` counts them.

GDPO (arXiv:2601.05242), Sec. 2 and Fig. 2-3.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, islice, product
from math import comb
from typing import Any

from rewardspec.groups.question import Group
from rewardspec.ir.graph import walk
from rewardspec.lint.facts import NOT_EXACT, Facts
from rewardspec.lint.gates import counts_only_where
from rewardspec.lint.registry import finding
from rewardspec.lint.small_groups import MOST_SMALL_GROUPS
from rewardspec.lint.summands import summands
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.spec import check
from rewardspec.text.diagnostics import Diagnostic
from rewardspec.text.numbers import format_number

MOST_COUNTED = 2000  # groups, over all moments and all values of the group's columns


@finding("sum-merges-groups", __doc__, of_spec=True)
def sum_merges_groups(facts: Facts) -> Iterator[Diagnostic]:
    question = facts.question
    if (
        question.intervals
        or not _normalises_a_sum(facts)
        or _is_ordered_bonus(facts)
        or facts.depends_on_batch("sum-merges-groups")
    ):
        return
    size = next((n for n in (3, 2) if _count(facts, n) <= MOST_SMALL_GROUPS), None)
    if size is None:
        facts.not_checked("sum-merges-groups", f"there are more than {MOST_SMALL_GROUPS} groups of 2")
        return
    other = _under(facts, "decoupled")
    if other is None:
        return
    kinds = ((columns, moment) for columns in _each(question.coarse) for moment in question.moments)
    looked_at = islice(kinds, 1 + MOST_COUNTED // _count(facts, size))
    found = []
    for kind in looked_at:
        groups = [Group(members, *kind) for members in combinations_with_replacement(question.states()[0], size)]
        own = _distinct(facts.groups.advantages(group) for group in groups)
        apart = _distinct(facts.groups.elsewhere(other.groups, group) for group in groups)
        if own is None or apart is None:
            facts.not_checked("sum-merges-groups", NOT_EXACT)
            return
        found.append((own, apart, *kind))
    own, apart, columns, moment = min(found, key=lambda f: Fraction(f[0], f[1]))
    if own < apart and own * 4 <= apart * 3:
        everywhere = question.complete and len(found) == question.kind_count and len({f[:2] for f in found}) == 1
        yield facts.warn(
            "sum-merges-groups",
            f"summing first leaves {own} distinct advantage groups of size {size}"
            + ("" if everywhere else _at(facts, columns, moment))
            + f"; normalising each reward first leaves {apart}{facts.bound}",
            facts.advantage_place(),
            help="use `gdpo`, which normalises each reward before it sums",
        )


def _is_ordered_bonus(facts: Facts) -> bool:
    """Whether all other components count only in right answers and are worth less in total than the outcome.

    Then the order of the sum is the intended order.
    """
    outcome = facts.outcome
    if outcome is None or outcome.component is None or not outcome.is_binary:
        return False
    worth = {}
    for component in facts.program.components:
        weight, domain = component.weight.constant, component.shaped.domain
        if weight is None or not domain.bounded:
            return False
        worth[component.name] = abs(weight) * (domain.hi - domain.lo)
    others = [name for name in worth if name != outcome.component and worth[name]]
    gated = all(counts_only_where(facts.declared, name, outcome.expr) for name in others)
    return gated and sum(worth[name] for name in others) < worth[outcome.component]


def _normalises_a_sum(facts: Facts) -> bool:
    """Whether the group is compared by a sum of several components, and every component is in such a sum."""
    question = facts.question
    shaped = {c.shaped for c in question.program.components if c.weight.constant != 0}
    sums = [summands(n.args[0], shaped) for n in walk([question.root]) if n.op in REDUCTIONS]
    return any(len(one) > 1 for one in sums) and set().union(*sums) == shaped


def _count(facts: Facts, size: int) -> int:
    states, complete = facts.question.states()
    return comb(len(states) + size - 1, size) if complete else MOST_SMALL_GROUPS + 1


def _each(points: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*points.values()):
        yield dict(zip(points, values, strict=True))


def _at(facts: Facts, columns: dict[str, Any], moment: dict[str, Fraction]) -> str:
    """The kind of group and the moment of a count: ` where `d` is 2, at step 30`."""
    nodes = {n.attributes[0]: n for n in walk(facts.question.nodes) if n.op == "column"}
    where = []
    for name, value in columns.items():
        symbols = nodes[name].domain.symbols
        shown = "missing" if value is None else symbols[int(value)] if symbols else format_number(value)
        where.append(f"`{name}` is {shown}")
    read = {n.attributes[0] for n in walk(facts.question.nodes) if n.op == "given"}
    when = [f"{name} {format_number(value)}" for name, value in moment.items() if name in read]
    found = ["where " + " and ".join(where)] if where else []
    found += ["at " + ", ".join(when)] if when else []
    return " " + ", ".join(found) if found else ""


def _under(facts: Facts, scheme: str) -> Facts | None:
    other, _ = check(facts.spec.source, {}, scheme)
    return None if other is None else Facts(other)


def _distinct(all_advantages: Iterator[list[Any] | None]) -> int | None:
    """The number of distinct advantage groups; None if some have no exact value."""
    found = set()
    for advantages in all_advantages:
        if advantages is None:
            return None
        found.add(frozenset((v, advantages.count(v)) for v in advantages))
    return len(found)
