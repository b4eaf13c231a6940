"""A group, with nothing missing, that has no advantage.

A reduction of nothing is missing (`max(x, where=correct)` where nobody is right), and what is divided by a spread
of 0 has no value. That is an error when it runs: training stops at the first such group, and groups in which all
are wrong, or all are alike, come early. It follows from the formula.

```yaml
components:
  correct: {values: [0, 1]}
  style: {values: [0, 1]}
advantage: center(style) - max(style, where=correct)
```

Say what such a group has: `coalesce(max(style, where=correct), 0)`, `... if std(style) > 0 else 0`; or leave it
out: `keep: any(correct)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewardspec.ir.checks import find_checks
from rewardspec.lint.facts import Facts
from rewardspec.lint.missing import listed, measured_without_advantage, rows
from rewardspec.lint.registry import finding
from rewardspec.lint.small_groups import Group
from rewardspec.lint.table import at_moment
from rewardspec.syntax.expression import parse_expression
from rewardspec.text.diagnostics import Diagnostic, Report, SpecError
from rewardspec.text.source import Source

MOST_TRIED_KEEPS = 4  # conditions that a help may propose, tried one by one


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
            f"a group can end the run: {rows(facts, shown[0])} get {listed(shown[1])}{at_moment(facts, shown[0][2])}",
            facts.advantage_place(),
            help="say what such a group has (`coalesce(x, 0)`, `... if std(x) > 0 else 0`), or leave it out with "
            f"`keep:{_that_leaves_out(facts)}`",
        )


def _undefined(facts: Facts) -> tuple[Group, list[Any]] | None:
    """A small group with nothing missing, and its advantages, of which one is."""
    for group, advantages in facts.groups.each():
        if any(None in row for row in group[0]) or advantages is None or None not in advantages:
            continue
        if measured_without_advantage(facts, group, advantages):
            return group, advantages
    return None


def _that_leaves_out(facts: Facts) -> str:
    """A condition for `keep:` under which no small group is undefined; nothing where no usual one does it."""
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
