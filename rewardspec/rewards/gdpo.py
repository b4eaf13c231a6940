"""GDPO's length reward (arXiv:2601.05242)."""

from __future__ import annotations

from typing import Annotated

from rewardspec.rewards.reward import Within, reward


@reward("gdpo.length", domain=(0, 1), expression="tokens <= {limit}")
def length(tokens: float, *, limit: Annotated[float, Within(ge=1, le=1e12)] = 4000.0) -> float:
    """1 where the completion has at most `limit` tokens, else 0.

    Source: GDPO, arXiv:2601.05242, Sec. 4.2.
    """
    return float(tokens <= limit)
