"""DAPO's penalty on overlong completions (arXiv:2503.14476)."""

from __future__ import annotations

from typing import Annotated

from rewardspec.ops.domain import Domain
from rewardspec.rewards.reward import Within, between, reward


def _domain(*, max: float, buffer: float) -> Domain:
    if buffer > max:
        raise ValueError(f"`buffer` must be at most `max`: {buffer:g} is more than {max:g} tokens")
    return between(-1, 0)


@reward("dapo.overlong", domain=_domain, expression="overlong(tokens, {max}, {buffer})")
def overlong(
    tokens: float,
    *,
    max: Annotated[float, Within(ge=1, le=1e12)],
    buffer: Annotated[float, Within(ge=1, le=1e12)],
) -> float:
    """0 up to `max - buffer` tokens, then falling to -1 at `max`.

    Source: DAPO, arXiv:2503.14476, Eq. 13.
    """
    return -min((tokens - (max - buffer)) / buffer, 1.0) if tokens > max - buffer else 0.0
