"""The registry of findings: one for each file in `rules/`, found by import."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from rewardspec.lint import rules

if TYPE_CHECKING:
    from rewardspec.lint.facts import Facts
    from rewardspec.text.diagnostics import Diagnostic

Look = Callable[["Facts"], "Iterable[Diagnostic]"]


@dataclass(frozen=True)
class Finding:
    """A kind of warning about a spec.

    page: Markdown: what is found, why it hurts training, an example, what to write instead, where it happened.
    look: yields the warnings about a spec.
    of_spec: it is about the whole spec, so only the spec's own `allow:` suppresses it, not a component's.
    """

    code: str
    page: str
    look: Look
    of_spec: bool = False

    @property
    def title(self) -> str:
        """The first line of the page."""
        return self.page.partition("\n")[0]


def finding(code: str, page: str | None, *, of_spec: bool = False) -> Callable[[Look], Finding]:
    """Decorates the function of a rule as a `Finding`. A rule's file passes its own docstring as the page:

    `@finding("name-of-the-file", __doc__)`
    """
    assert page, f"{code} has no page"
    text = page.strip()
    return lambda look: Finding(code, text, look, of_spec)


@cache
def registered() -> dict[str, Finding]:
    """All findings by code, sorted by code."""
    modules = [import_module(f"{rules.__name__}.{module.name}") for module in iter_modules(rules.__path__)]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Finding)]
    return {one.code: one for one in sorted(found, key=lambda one: one.code)}
