"""Changes of a spec that would have left fewer groups of a run without signal, each tried on the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from rewardspec.language.declarations import Component
from rewardspec.lint.facts import Facts
from rewardspec.logs.run import Run
from rewardspec.prove.verify import verify
from rewardspec.runs.replay import UnderSpec, replay_each
from rewardspec.spec import Changes, Spec
from rewardspec.syntax.expression import read
from rewardspec.syntax.tree import Expr, If, Number
from rewardspec.text.diagnostics import Report, SpecError
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Source

SCHEMES = ("grpo", "gdpo", "decoupled", "rloo", "dr_grpo")
FACTORS = (Fraction(1, 2), Fraction(2))  # of a weight
SIZES = (2, 3)  # of groups, for guarantees


@dataclass(frozen=True)
class Suggestion:
    """One change, and what it comes to on the log.

    groups_without_signal: of all groups of the run, under the change; without it they `was`. kept: the guarantees that
    no group of 2 or 3 breaks. remarks: codes of the audit under the change.
    """

    change: str
    groups_without_signal: float
    was: float
    kept: tuple[str, ...]
    remarks: tuple[str, ...]


def suggest(run: Run, spec: Spec, now: UnderSpec, total_steps: int | None = None) -> tuple[Suggestion, ...]:
    """The changes that leave fewest dead groups, best first. None breaks a guarantee that the spec keeps, on the log
    or in all groups of 2 and 3; none adds a remark to the audit.

    now: the spec itself over the run. All candidates are tried in one more pass over the log; one that the log has no
    advantage under, as where it divides by 0, is none. Raises BadLog, OSError.
    """
    kept, was, remarks = _kept(spec), _dead(now), {remark.code for remark in now.audit}
    if not was:
        return ()
    tried, own, seen = dict[str, Spec](), dict[str, tuple[str, ...]](), {spec.fingerprint}
    for change, changes in _candidates(spec):
        try:
            other = spec.varied(**changes)
            if other.fingerprint in seen:
                continue
            own[change] = _kept(other)
        except SpecError:
            continue
        seen.add(other.fingerprint)
        if set(kept) <= set(own[change]):
            tried[change] = other
    found = []
    for change, under in replay_each(run, tried, total_steps=total_steps).items():
        told = tuple(dict.fromkeys(remark.code for remark in under.audit))
        if _dead(under) < was and set(told) <= remarks and _broken(under) <= _broken(now):
            found.append(Suggestion(change, _dead(under), was, own[change], told))
    return tuple(sorted(found, key=lambda one: (len(one.remarks), one.groups_without_signal)))


def _dead(found: UnderSpec) -> float:
    """The fraction of all groups of the run that are dead."""
    groups = sum(step.groups for step in found.steps)
    return sum(step.groups * step.groups_without_signal for step in found.steps) / groups


def _broken(found: UnderSpec) -> set[str]:
    """The guarantees that groups of the run break."""
    return {r.message.partition("break the guarantee ")[2] for r in found.audit if r.code == "guarantee-broken"}


def _kept(spec: Spec) -> tuple[str, ...]:
    """The guarantees that no small group breaks."""
    return tuple(v.name for v in verify(spec, SIZES) if not v.refuted) if spec.program.guarantees else ()


def _candidates(spec: Spec) -> Iterator[tuple[str, Changes]]:
    """Changes of the scheme, of one gate or of one weight, in words and as `Spec.varied` takes them."""
    declared = spec.declarations
    for scheme in SCHEMES:
        yield f"advantage: {scheme}", {"advantage": _read(scheme)}
    outcome = Facts(spec).outcome
    weights = {component.name: component.weight for component in spec.program.components}
    for name, component in declared.components.items():

        def with_(name: str, changed: Component) -> Changes:
            return {"components": {**declared.components, name: changed}}

        if outcome is not None and component.when is None and name not in outcome.reads and component.value:
            gate, nothing = outcome.expr, Number(component.span, Fraction(0))
            gated = replace(component, when=gate, value=If(component.span, gate, component.value, nothing))
            yield f"{name}: {{when: {outcome.condition}}}", with_(name, gated)
        weight = weights[name].constant
        if not weight:
            continue
        for factor in FACTORS:
            changed = replace(component, weight=Number(component.span, weight * factor))
            yield f"{name}: {{weight: {format_number(weight * factor)}}}", with_(name, changed)


def _read(text: str) -> Expr:
    found = read(Source("suggestion", text), Report())
    assert found is not None, text
    return found
