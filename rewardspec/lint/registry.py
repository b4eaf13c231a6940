"""The findings that there are. Each is one file of `rules/`; nothing here knows one of them by name."""

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
    """One thing to find.

    page: Markdown that explains it. Its parts: what is found, why it is bad, an example, what to write instead.
    look: yields what is found in a spec.
    of_spec: it is about the spec as a whole, so that only the spec's own `allow:` silences it, and no component's.
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
    """Makes a function that looks for something a `Finding`. A rule's file passes its own docstring as the page:

    `@finding("name-of-the-file", __doc__)`
    """
    assert page, f"{code} has no page"
    text = page.strip()
    return lambda look: Finding(code, text, look, of_spec)


@cache
def registered() -> dict[str, Finding]:
    """All findings by code, in the order of their codes."""
    modules = [import_module(f"{rules.__name__}.{module.name}") for module in iter_modules(rules.__path__)]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Finding)]
    return {one.code: one for one in sorted(found, key=lambda one: one.code)}
