"""What a spec allows: which findings it silences, and which allowances silence nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewardspec.lint.facts import Facts
from rewardspec.lint.pages import PAGES
from rewardspec.lint.registry import registered
from rewardspec.text.diagnostics import Diagnostic, did_you_mean, shorten
from rewardspec.text.source import Span


def allowances(facts: Facts) -> Iterator[tuple[str | None, str, Span]]:
    """(component or None for the whole spec, code, place) of everything that a spec allows."""
    for code, span in facts.declared.allow.items():
        yield None, code, span
    for name, component in facts.declared.components.items():
        for code, span in component.allow.items():
            yield name, code, span


def is_allowed(facts: Facts, diagnostic: Diagnostic) -> bool:
    return any(
        code == diagnostic.code and (name is None or _stands_in(facts, name, diagnostic))
        for name, code, _ in allowances(facts)
    )


def allowed_in_vain(facts: Facts, found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Warnings about allowances that silence nothing: of no finding, of an error, in a component of another one's."""
    for component, code, span in allowances(facts):
        if code in PAGES and not PAGES[code].is_error:
            message = f"`{code}` is about `allow:` itself, and cannot be allowed"
            yield facts.warn("allow-without-effect", message, span, help="mend what it points at")
        elif code in PAGES:
            message = f"`{code}` is an error, and cannot be allowed"
            help = f"leave it out; `rewardspec explain {code}` says what to write instead"
            yield facts.warn("allow-without-effect", message, span, help=help)
        elif code not in registered():
            message = f"there is no finding `{shorten(code)}` to allow"
            near = did_you_mean(code, registered(), "`rewardspec list findings` shows all")
            yield facts.warn("unknown-finding", message, span, help=near)
        elif component is not None and (registered()[code].of_spec or _is_elsewhere(facts, component, code, found)):
            whole = "is about the whole spec: no component can"
            elsewhere = f"is not found in `{component}`, which cannot"
            message = f"`{code}` {whole if registered()[code].of_spec else elsewhere} allow it"
            yield facts.warn("allow-without-effect", message, span, help="say it in the spec's own `allow:`")


def _is_elsewhere(facts: Facts, component: str, code: str, found: Sequence[Diagnostic]) -> bool:
    """Whether a finding is found outside all components, and not in this one."""
    own = [d for d in found if d.code == code]
    if any(_stands_in(facts, component, d) for d in own):
        return False
    return any(not any(_stands_in(facts, name, d) for name in facts.declared.components) for d in own)


def _stands_in(facts: Facts, component: str, diagnostic: Diagnostic) -> bool:
    place = facts.declared.components[component].place
    return place.name.start <= diagnostic.span.start <= place.value.end
