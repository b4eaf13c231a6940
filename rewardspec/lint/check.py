"""All findings about one spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rewardspec.lint.allow import allowances, is_allowed, without_effect
from rewardspec.lint.facts import ANY_RUN, NOT_EXACT, Facts, Run
from rewardspec.lint.registry import registered
from rewardspec.ops.exact import Inexact
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import Diagnostic, SpecError


@dataclass(frozen=True)
class Findings:
    """The diagnostics of a spec.

    warnings: in the order of the text, without those that the spec allows.
    notes: the findings that could not be checked, or not in all groups; one note for each reason.
    """

    warnings: list[Diagnostic]
    notes: list[Diagnostic]


def findings(spec: Spec, run: Run = ANY_RUN) -> Findings:
    """The findings about a spec. Raises ValueError for a rate of a column that cannot have one."""
    facts = Facts(spec, run)
    found: list[Diagnostic] = []
    for one in registered().values():
        try:
            found += one.look(facts)
        except (Inexact, SpecError):  # nothing can be decided
            facts.not_checked(one.code, NOT_EXACT)
    useless = list(without_effect(facts, found))
    settled = {d.code for d in found} | {code for component, code, _ in allowances(facts) if component is None}
    left = [d for d in found if not is_allowed(facts, d)]
    return Findings(sorted([*left, *useless], key=lambda d: (d.span.start, d.code)), list(_notes(facts, settled)))


def _notes(facts: Facts, settled: set[str]) -> Iterator[Diagnostic]:
    """A note for each reason why findings were not checked, without those in `settled`; and on longer lists."""
    left = sorted((sorted(codes - settled), reason) for reason, codes in facts.unchecked.items())
    said = [f"{', '.join(codes)} ({reason})" for codes, reason in left if codes]
    if facts.tried_lists:
        said.append(f"most lists of more than {facts.run.items} items")
    for message in said:
        yield Diagnostic("not-checked", message, facts.advantage_place(), severity="note")
