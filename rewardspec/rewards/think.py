"""The format of thoughts and answers in tags."""

from __future__ import annotations

from typing import Annotated, Literal

from rewardspec.rewards.reward import Within, reward
from rewardspec.rewards.tagged import in_order

Tag = Annotated[str, Within(pattern=r"^[A-Za-z_][A-Za-z_0-9-]{0,63}$")]


@reward("think.format", domain=(0, 1))
def format(
    completion: str,
    *,
    tags: Annotated[tuple[Tag, ...], Within(min_length=1, max_length=16)] = ("think", "answer"),
    then: Literal["nothing", "text"] = "nothing",
    opened: bool = False,
) -> float:
    """1 if the completion is these elements, each once, in this order, else 0.

    Only white space is allowed between elements, and no element may be empty.

    then: `text` requires an answer without tags after the last element. opened: the prompt ends with the first opening
    tag, so the completion does not begin with it.
    Source: DeepSeek-R1, arXiv:2501.12948, Sec. 2.2.2, format reward.
    """
    text = f"<{tags[0]}>{completion}" if opened else completion
    if len(set(tags)) < len(tags) or not in_order(text, tags):
        return 0.0
    at = 0
    for tag in tags:
        start, end = text.index(f"<{tag}>", at), text.index(f"</{tag}>", at)
        if text[at:start].strip() or not text[start + len(tag) + 2 : end].strip():
            return 0.0
        at = end + len(tag) + 3
    return float(bool(text[at:].strip()) == (then == "text"))
