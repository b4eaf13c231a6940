"""All pages, and those of a word. A new kind of page is one line in `KINDS`."""

from __future__ import annotations

from collections.abc import Iterator

from rewardspec.manual.findings import ERRORS, FINDINGS
from rewardspec.manual.formulas import DEFINITIONS, DIALECTS, SCHEMES
from rewardspec.manual.functions import FUNCTIONS
from rewardspec.manual.page import Kind, Page
from rewardspec.manual.rewards import REWARDS
from rewardspec.manual.specs import SPECS
from rewardspec.manual.words import KEYS, NAMES

KINDS: tuple[Kind, ...] = (
    SCHEMES,
    DEFINITIONS,
    FUNCTIONS,
    NAMES,
    KEYS,
    REWARDS,
    SPECS,
    DIALECTS,
    FINDINGS,
    ERRORS,
)


def all_pages() -> Iterator[Page]:
    """Every page, kind by kind. A page is made when it is taken."""
    for kind in KINDS:
        yield from map(kind.page, kind.names())


def pages_named(word: str) -> list[Page]:
    """The pages of a word, in the order of kinds: `missing` is a key and a name. Without any, an empty list."""
    return [kind.page(word) for kind in KINDS if word in kind.names()]


def names() -> list[str]:
    """The names of all pages, sorted."""
    return sorted({name for kind in KINDS for name in kind.names()})
