"""The words in a name, which show an outcome, a length or a count."""

from __future__ import annotations

import re


def words_of(name: str) -> set[str]:
    """The words in a name: math and correct in `mathCorrect_2`."""
    return set(re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()))
