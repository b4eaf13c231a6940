"""Short answers."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from rewardspec.rewards.reward import BadReference, reward
from rewardspec.rewards.tagged import last_element

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@reward("qa.exact_match", domain=(0, 1))
def exact_match(completion: str, answer: str | Sequence[str], *, tag: str = "answer") -> float:
    """1 if the answer equals a reference, ignoring case, punctuation, articles and white space, else 0.

    The answer is the last `<tag>...</tag>`, with `tag: none` the whole completion; a completion without one is wrong.
    An answer of punctuation and articles only is compared unchanged. Raises BadReference.
    Source: SQuAD, arXiv:1606.05250, Sec. 6.1, exact match.
    """
    golds = references(answer)
    found = completion if tag == "none" else last_element(completion, tag)
    return float(found is not None and any(_plain(found) == _plain(gold) for gold in golds))


def references(answer: str | Sequence[str]) -> list[str]:
    """The right answers, at least one. Raises BadReference."""
    golds = [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, Sequence) else []
    if not golds or not all(isinstance(gold, str) and gold.strip() for gold in golds):
        raise BadReference("a ground truth must be a text or a list of texts, none of them empty")
    return golds


def _plain(text: str) -> str:
    bare = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(bare.split()) or " ".join(text.split())
