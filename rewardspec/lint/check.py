"""Every finding, looked for in one spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rewardspec.lint.allow import allowances, allowed_in_vain, is_allowed
from rewardspec.lint.facts import ANY_RUN, NOT_EXACT, Facts, Run
from rewardspec.lint.registry import registered
from rewardspec.ops.exact import Inexact
from rewardspec.spec import Spec
from rewardspec.text.diagnostics import Diagnostic, SpecError


@dataclass(frozen=True)
class Findings:
    """What the findings say of a spec.

    warnings: in the order of the text, less what the spec allows. notes: one for each reason why some findings could
    not be looked for, or not everywhere.
    """

    warnings: list[Diagnostic]
    notes: list[Diagnostic]


def findings(spec: Spec, run: Run = ANY_RUN) -> Findings:
    """What every finding says of a spec. Raises ValueError for a rate of something that cannot have one."""
    facts = Facts(spec, run)
    found: list[Diagnostic] = []
    for one in registered().values():
        try:
            found += one.look(facts)
        except (Inexact, SpecError):  # without exact values, or a graph of them, nothing is decided
            facts.leave_out(one.code, NOT_EXACT)
    in_vain = list(allowed_in_vain(facts, found))
    settled = {d.code for d in found} | {code for component, code, _ in allowances(facts) if component is None}
    left = [d for d in found if not is_allowed(facts, d)]
    return Findings(sorted([*left, *in_vain], key=lambda d: (d.span.start, d.code)), list(_notes(facts, settled)))


def _notes(facts: Facts, settled: set[str]) -> Iterator[Diagnostic]:
    """What was not looked for, a note for each reason; of `settled` findings nothing more is said."""
    left = sorted((sorted(codes - settled), reason) for reason, codes in facts.left_out.items())
    for codes, reason in left:
        if codes:
            message = f"{', '.join(codes)}: {reason}"
            yield Diagnostic("not-looked-at", message, facts.advantage_place(), severity="note")
