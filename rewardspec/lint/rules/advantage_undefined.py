"""A group without missing values whose advantage is undefined.

A reduction of no rollouts is missing: `max(x, where=correct)` in a group without a right answer. A division by a
spread of 0 is undefined. Either raises an error, so training stops at the first such group. Groups in which all
rollouts are wrong, or all are equal, come early. So do rollouts without a turn or a call: `mean(x, over=rollout)` of no
items is missing.

```yaml
components:
  correct: {values: [0, 1]}
  style: {values: [0, 1]}
advantage: center(style) - max(style, where=correct)
```

Give such groups a value: `coalesce(max(style, where=correct), 0)`, `... if std(style) > 0 else 0`. Or drop them:
`keep: any(correct)`.

It follows from the formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.groups.question import Group
from rewardspec.ir.checks import find_checks
from rewardspec.lint.facts import Facts
from rewardspec.lint.items import flat
from rewardspec.lint.missing import listed, measured_without_advantage, rows
from rewardspec.lint.registry import finding
from rewardspec.lint.table import at_moment
from rewardspec.syntax.expression import parse_expression
from rewardspec.text.diagnostics import Diagnostic, Report, SpecError
from rewardspec.text.source import Source

MOST_TRIED_KEEPS = 4  # conditions that are tried for the help


@finding("advantage-undefined", __doc__, of_spec=True)
def advantage_undefined(facts: Facts) -> Iterator[Diagnostic]:
    program = facts.program
    if not program.advantage.domain.missing and not find_checks(program.graph, [program.advantage]):
        return  # the domains prove that there is a value
    if facts.depends_on_batch("advantage-undefined"):
        return
    facts = facts.with_eps if facts.divides_by_eps else facts
    shown = _undefined(facts)
    if shown is not None:
        yield facts.warn(
            "advantage-undefined",
            "the advantage of a group can be undefined, which raises: "
            f"{rows(facts, shown[0])} get {listed(shown[1])}{at_moment(facts, shown[0][2])}",
            facts.advantage_place(),
            help="give such groups a value (`coalesce(x, 0)`, `... if std(x) > 0 else 0`), or drop them: "
            f"`keep:{_that_drops_them(facts)}`",
        )


def _undefined(facts: Facts) -> tuple[Group, list[Any]] | None:
    """A small group without missing values whose advantages are undefined for some rollout, and the advantages."""
    for group, advantages in facts.groups.each():
        if any(None in flat(row) for row in group[0]) or advantages is None or None not in flat(advantages):
            continue
        if measured_without_advantage(facts, group, advantages):
            return group, advantages
    return None


def _that_drops_them(facts: Facts) -> str:
    """A condition for `keep:` that drops every undefined small group; empty if none of the usual ones does."""
    if facts.program.keep is not None:
        return ""
    usual = [f"std({name}) > 0" for name in facts.shaped]
    for condition in [*([facts.outcome.any] if facts.outcome else []), *usual[:MOST_TRIED_KEEPS]]:
        source = Source("keep", condition)
        keep = parse_expression(condition, source.span, Report())
        try:
            kept = facts.spec.varied(keep=keep)
        except SpecError:
            continue
        if _undefined(Facts(kept)) is None:
            return f" {condition}"
    return ""
