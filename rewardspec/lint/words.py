"""The words of a name, for what names tell: an outcome, a length, a count."""

from __future__ import annotations

import re


def words_of(name: str) -> set[str]:
    """The words that a name is made of: of `mathCorrect_2`, math and correct."""
    return set(re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()))
