"""`judge.rubric`: the score that a language model gives by a rubric."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rewardspec.ops.domain import Domain, finite
from rewardspec.rewards.judge.answer import find_score
from rewardspec.rewards.judge.key import Secret, key_for
from rewardspec.rewards.judge.request import address_of, body_of, check_extra, digest, endpoint_url
from rewardspec.rewards.judge.template import filled, reference, rubric_text
from rewardspec.rewards.reward import each, reward
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from rewardspec.rewards.judge.client import Endpoint, Unanswered

_LOG = logging.getLogger(__name__)
_BETWEEN = 0.5  # seconds between two writes of answers to the cache

Score = Annotated[float, Field(allow_inf_nan=False)]


def _domain(
    *, template: str, scores: Sequence[float] | str, url: str | None, extra: dict[str, Any] | None, **_: Any
) -> Domain:
    _text, allowed = rubric_text(template, scores)
    check_extra(extra)
    if url is not None:
        address_of(url, "`url`")
    return finite([Fraction(repr(float(score))) for score in allowed])


@reward("judge.rubric", domain=_domain, inputs=("prompt", "completion", "answer"), many=True)
def rubric(
    prompts: Sequence[str],
    completions: Sequence[str],
    answers: Sequence[str | float | Sequence[str] | None] | None = None,
    *,
    template: str,
    model: Annotated[str, Field(min_length=1)],
    scores: Annotated[tuple[Score, ...], Field(min_length=1)] | Literal["rubric"] = "rubric",
    url: str | None = None,
    key: Literal["environment", "none"] = "environment",
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = 0.0,
    max_tokens: Annotated[int, Field(gt=0)] | None = 2048,
    extra: dict[str, Any] | None = None,
    concurrency: Annotated[int, Field(gt=0)] = 32,
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 120.0,
    retries: Annotated[int, Field(ge=0, le=100)] = 3,
    cache: str = "user",
) -> list[float | None]:
    """The score that a language model gives each rollout by a rubric; None if it gave none.

    template: the name of a rubric in `specs/rubrics`, or a text with `{completion}` and, if needed, `{prompt}`,
    `{answer}` and `{fence}`, a mark that no completion can know in advance. It should ask for a last line `Score: X`;
    JSON with a key `score`, or a last line that is only a number, are read as well. scores: the numbers that count; a
    rubric of `specs/rubrics` has its own, any other needs them.
    url: an OpenAI-compatible endpoint, such as `http://localhost:8000/v1`; by default OPENAI_BASE_URL. key: by default
    OPENAI_API_KEY of the environment, if it is set; or `none`. The key is sent to the host of OPENAI_BASE_URL
    (OpenAI's if that is not set) and to those in REWARDSPEC_KEY_HOSTS; ValueError is raised for any other.
    temperature, max_tokens: null uses the endpoint's defaults.
    extra: more fields of a request, such as `{reasoning_effort: low}`.
    timeout: seconds for one attempt. retries: attempts after the first, on 429, 5xx, time-outs and broken
    connections, with growing pauses.
    cache: a folder on a local disk for answers, `user` for one in the user's cache folder, or `none`.

    answers: texts, lists of texts, or numbers; only read by a template with `{answer}`. Raises BadReference for
    anything else, ValueError for contradictory settings, EndpointError if the endpoint refuses (400, 401, 404).
    Source: PAPO, Sec. 2.2 and App. A.3; PRS, App. B.
    """
    from rewardspec.rewards.judge.cache import cache_folder
    from rewardspec.rewards.judge.client import Endpoint

    text, allowed = rubric_text(template, scores)
    check_extra(extra)
    address = endpoint_url(url)
    endpoint = Endpoint(address, Secret("") if key == "none" else key_for(address), concurrency, timeout, retries)
    compares = "{answer}" in text
    golds = each(reference, answers if answers is not None else [None] * len(completions)) if compares else None
    bodies = [
        body_of(filled(text, prompt, completion, gold), model, temperature, max_tokens, extra)
        for prompt, completion, gold in zip(prompts, completions, golds or [""] * len(completions), strict=True)
    ]
    names = [digest(endpoint.url, body) for body in bodies]
    found, missing = _asked(endpoint, dict(zip(names, bodies, strict=True)), allowed, cache_folder(cache))
    _warn(endpoint.url, [missing[name] for name in names if name in missing], len(names))
    return [found.get(name) for name in names]


def _asked(
    endpoint: Endpoint, requests: dict[str, dict[str, Any]], allowed: Sequence[float], folder: Path | None
) -> tuple[dict[str, float], dict[str, Unanswered]]:
    """The scores of requests, from `folder` or the endpoint, and the requests without a score."""
    from rewardspec.rewards.judge.cache import keep, recall
    from rewardspec.rewards.judge.client import Unanswered, ask_all

    held = recall(folder, requests) if folder else None
    found = _scores(held or {}, allowed)
    said: dict[str, str] = {}
    kept: set[str] = set()
    last = -math.inf

    def keep_new(between: float = 0.0) -> None:
        """Save new answers, if the last save was `between` seconds ago or more: an error must not lose them."""
        nonlocal last
        if folder and held is not None and time.monotonic() - last >= between:
            new = {name: said[name] for name in _scores({n: a for n, a in said.items() if n not in kept}, allowed)}
            keep(folder, new)
            kept.update(new)
            last = time.monotonic()

    try:
        left = {name: body for name, body in requests.items() if name not in found}
        missing = ask_all(endpoint, left, said, lambda: keep_new(_BETWEEN))
    finally:
        keep_new()
    fresh = _scores(said, allowed)
    for name in said.keys() - fresh.keys():
        missing[name] = Unanswered("answers without a score", said[name][-200:])
    return found | fresh, missing


def _scores(said: dict[str, str], allowed: Sequence[float]) -> dict[str, float]:
    """The scores of the answers that have one."""
    read = {name: find_score(answer, allowed) for name, answer in said.items()}
    return {name: score for name, score in read.items() if score is not None}


def _warn(url: str, missing: Sequence[Unanswered], rollouts: int) -> None:
    """Log one line about the rollouts of a batch without a score, with the first detail of each cause."""
    if not missing:
        return
    first = {one.why: one.detail for one in reversed(missing)}
    causes = [
        f"{count} {why}" + (f" ({first[why]})" if first[why] else "")
        for why, count in Counter(one.why for one in missing).most_common()
    ]
    _LOG.warning(
        "judge at %s: %d of %d rollouts have no score: %s", shown(url), len(missing), rollouts, "; ".join(causes)
    )
