"""The `allow` entries of a spec: the findings that they suppress, and entries without effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewardspec.lint.facts import Facts
from rewardspec.lint.pages import PAGES
from rewardspec.lint.registry import registered
from rewardspec.text.diagnostics import Diagnostic, did_you_mean, shorten
from rewardspec.text.source import Span


def allowances(facts: Facts) -> Iterator[tuple[str | None, str, Span]]:
    """(component or None for the whole spec, code, place) for each entry of `allow`."""
    for code, span in facts.declared.allow.items():
        yield None, code, span
    for name, component in facts.declared.components.items():
        for code, span in component.allow.items():
            yield name, code, span


def is_allowed(facts: Facts, diagnostic: Diagnostic) -> bool:
    """Whether the spec, or the component that the diagnostic is in, allows it."""
    return any(
        code == diagnostic.code and (name is None or _is_in(facts, name, diagnostic))
        for name, code, _ in allowances(facts)
    )


def without_effect(facts: Facts, found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Warnings about `allow` entries without effect: unknown codes, errors, findings about another component."""
    for component, code, span in allowances(facts):
        if code in PAGES and not PAGES[code].is_error:
            message = f"`{code}` is about `allow:` itself and cannot be allowed"
            yield facts.warn("allow-without-effect", message, span, help="fix the entry that it points to")
        elif code in PAGES:
            message = f"`{code}` is an error and cannot be allowed"
            help = f"remove it; `rewardspec explain {code}` shows what to write instead"
            yield facts.warn("allow-without-effect", message, span, help=help)
        elif code not in registered():
            message = f"there is no finding `{shorten(code)}`"
            near = did_you_mean(code, registered(), "run `rewardspec list findings` for all of them")
            yield facts.warn("unknown-finding", message, span, help=near)
        elif component is not None and (registered()[code].of_spec or _is_elsewhere(facts, component, code, found)):
            whole = "is about the whole spec, so no component can allow it"
            elsewhere = f"is not found in `{component}`, which cannot allow it"
            message = f"`{code}` {whole if registered()[code].of_spec else elsewhere}"
            yield facts.warn("allow-without-effect", message, span, help="move it to the spec's own `allow:`")


def _is_elsewhere(facts: Facts, component: str, code: str, found: Sequence[Diagnostic]) -> bool:
    """Whether a finding is not in this component, but somewhere outside all components."""
    own = [d for d in found if d.code == code]
    if any(_is_in(facts, component, d) for d in own):
        return False
    return any(not any(_is_in(facts, name, d) for name in facts.declared.components) for d in own)


def _is_in(facts: Facts, component: str, diagnostic: Diagnostic) -> bool:
    place = facts.declared.components[component].place
    return place.name.start <= diagnostic.span.start <= place.value.end
