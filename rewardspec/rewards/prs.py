"""Question answering with tools: process, format and answer of Progressive Reward Shaping (the PRS and VSPO paper)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from rewardspec.rewards.qa import references
from rewardspec.rewards.reward import Within, between, reward
from rewardspec.rewards.tagged import Malformed, elements, last_element, read_calls
from rewardspec.rewards.think import Tag

ARGUMENTS = ("arguments", "parameters")


@reward("prs.process", domain=(-1, 0, 1))
def process(completion: str, *, call: Tag = "tool_call", answer: Tag = "answer") -> float:
    """1 if every tool call and the answer are readable, 0 if only the calls are, -1 if a call is not.

    A call is a JSON object with `name` and `arguments` (or `parameters`) in `<tool_call>`; an answer is a text in a
    closed `<answer>`. A trajectory without calls has no unreadable call.

    call, answer: the names of the tags.
    Source: PRS, Eq. 8.
    """
    for inner in elements(completion, call):
        try:
            if inner is None or not read_calls(inner, ARGUMENTS):
                return -1.0
        except Malformed:
            return -1.0
    return float(bool((last_element(completion, answer) or "").strip()))


@reward("prs.format", domain=(0, 0.1))
def format(
    completion: str,
    *,
    tags: Annotated[tuple[Tag, ...], Within(min_length=2, max_length=16)] = ("reasoning", "tool_call", "answer"),
    observations: tuple[Tag, ...] = ("tool_response", "observation"),
) -> float:
    """0.1 if all generated text is inside its tags, else 0.

    The trajectory must be a sequence of closed elements with white space between. It begins with the first of `tags`
    and ends with the last, which appears once. Observations, written by the environment, may appear anywhere.
    Source: PRS, Eq. 9.
    """
    found = _row(completion, (*tags, *observations))
    own = [tag for tag in found or () if tag not in observations]
    return 0.1 if own and own[0] == tags[0] and own[-1] == tags[-1] and own.count(tags[-1]) == 1 else 0.0


def _row(text: str, tags: tuple[str, ...]) -> list[str] | None:
    """The tags of a text that is a sequence of closed elements; None for any other text."""
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        end = text.find(">", at, at + 80)
        tag = text[at + 1 : end]
        if text[at] != "<" or end < 0 or tag not in tags:
            return None
        close = text.find(f"</{tag}>", end)
        if close < 0 or f"<{tag}>" in text[end:close]:
            return None
        found.append(tag)
        at = close + len(tag) + 3
        while at < len(text) and text[at].isspace():
            at += 1
    return found


@reward("prs.answer", domain=lambda **_: between(0, 1))
def answer(
    completion: str,
    answer: str | Sequence[str],
    *,
    tag: str = "answer",
    tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a",
    lowercase: bool = False,
) -> float:
    """Short-form BLEU of the answer: BLEU with n-grams of at most the answer's length, if that is below 4.

    So one right word scores 1. The answer is the last `<tag>...</tag>`, with `tag: none` the whole completion; without
    an answer the score is 0. Several references are combined as in BLEU.

    tokenize, lowercase: as in sacrebleu. Raises BadReference.
    Source: PRS, Eq. 10-12.
    """
    golds = references(answer)
    found = completion if tag == "none" else last_element(completion, tag)
    if found is None:
        return 0.0
    if lowercase:
        found, golds = found.lower(), [gold.lower() for gold in golds]
    # sums of logarithms put an exact match a few ulps away from 1
    return round(float(_bleu(tokenize).sentence_score(found, golds).score) / 100, 12)


@lru_cache
def _bleu(tokenize: str) -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ModuleNotFoundError:
        raise ModuleNotFoundError("`prs.answer` needs sacrebleu: pip install 'rewardspec[rewards]'") from None
    # effective_order is Eq. 11: no n-grams longer than the candidate
    return BLEU(effective_order=True, smooth_method="none", tokenize=tokenize)
