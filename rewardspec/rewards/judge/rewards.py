"""`judge.rubric`: the score that a language model gives by a rubric, or one for each criterion of a list."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rewardspec.ops.domain import Domain, finite
from rewardspec.rewards.judge.answer import find_score, find_verdicts
from rewardspec.rewards.judge.key import Secret, key_for
from rewardspec.rewards.judge.request import address_of, body_of, check_extra, digest, endpoint_url
from rewardspec.rewards.judge.template import CRITERIA, criteria_of, filled, numbered, reference, rubric_text
from rewardspec.rewards.reward import each, reward
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from rewardspec.rewards.judge.client import Endpoint, Unanswered

_LOG = logging.getLogger(__name__)
_BETWEEN = 0.5  # seconds between two writes of answers to the cache

Score = Annotated[float, Field(allow_inf_nan=False)]


def _domain(
    *,
    template: str,
    scores: Sequence[float] | str,
    calls: str | None,
    url: str | None,
    extra: dict[str, Any] | None,
    listed: bool = False,
    **_: Any,
) -> Domain:
    if calls is not None and not listed:
        raise ValueError("`calls` is for a list of criteria: add `criteria` and `level`")
    _text, allowed = rubric_text(template, scores, (calls or "each") if listed else None)
    check_extra(extra)
    if url is not None:
        address_of(url, "`url`")
    return finite([Fraction(repr(float(score))) for score in allowed])


@reward(
    "judge.rubric",
    domain=_domain,
    inputs=("prompt", "completion", "answer", "criteria"),
    many=True,
    items="criteria",
)
def rubric(
    prompts: Sequence[str],
    completions: Sequence[str],
    answers: Sequence[str | float | Sequence[str] | None] | None = None,
    criteria: Sequence[object] | None = None,
    *,
    template: str,
    model: Annotated[str, Field(min_length=1)],
    scores: Annotated[tuple[Score, ...], Field(min_length=1)] | Literal["rubric"] = "rubric",
    calls: Literal["each", "all"] | None = None,
    url: str | None = None,
    key: Literal["environment", "none"] = "environment",
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = 0.0,
    max_tokens: Annotated[int, Field(gt=0)] | None = 2048,
    extra: dict[str, Any] | None = None,
    concurrency: Annotated[int, Field(gt=0)] = 32,
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 120.0,
    retries: Annotated[int, Field(ge=0, le=100)] = 3,
    cache: str = "user",
) -> list[float | None] | list[list[float | None]]:
    """The score that a language model gives each rollout by a rubric; None if it gave none.

    With `criteria` a list for each rollout instead, with the score of each of its criteria.

    template: the name of a rubric in `specs/rubrics`, or a text with `{completion}` and, if needed, `{prompt}`,
    `{answer}` and `{fence}`, a mark that no completion can know in advance. It should ask for a last line `Score: X`;
    JSON with a key `score`, or a last line that is only a number, are read as well. scores: the numbers that count; a
    rubric of `specs/rubrics` has its own, any other needs them.
    calls: with `criteria`, `each` (the default) to ask about one criterion at a time, which `{criterion}` in the
    template holds; `all` to ask once for each rollout: `{criteria}` holds them, numbered, and the answer must end with
    a JSON list of as many scores, else all are None.
    url: an OpenAI-compatible endpoint, such as `http://localhost:8000/v1`; by default OPENAI_BASE_URL. key: by default
    OPENAI_API_KEY of the environment, if it is set; or `none`. The key is sent to the host of OPENAI_BASE_URL
    (OpenAI's if that is not set) and to those in REWARDSPEC_KEY_HOSTS; ValueError is raised for any other.
    temperature, max_tokens: null uses the endpoint's defaults.
    extra: more fields of a request, such as `{reasoning_effort: low}`.
    timeout: seconds for one attempt. retries: attempts after the first, on 429, 5xx, time-outs and broken
    connections, with growing pauses.
    cache: a folder on a local disk for answers, `user` for one in the user's cache folder, or `none`.

    answers: texts, lists of texts, or numbers; only read by a template with `{answer}`. criteria: for each rollout a
    list, up to 64, of texts or of objects with a text `criterion`. Raises BadReference for anything else, ValueError
    for contradictory settings, EndpointError if the endpoint refuses (400, 401, 404).
    Source: PAPO, Sec. 2.2 and App. A.3; PRS, App. B.
    """
    from rewardspec.rewards.judge.cache import cache_folder
    from rewardspec.rewards.judge.client import Endpoint

    calls = None if criteria is None else calls or "each"
    text, allowed = rubric_text(template, scores, calls)
    check_extra(extra)
    address = endpoint_url(url)
    endpoint = Endpoint(address, Secret("") if key == "none" else key_for(address), concurrency, timeout, retries)
    data = _data("{answer}" in text, answers, criteria, len(completions))
    requests: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}  # how many scores the answer to a request should have
    asked: list[list[str]] = []  # the requests of each rollout
    for prompt, completion, (gold, texts) in zip(prompts, completions, data, strict=True):
        asked.append([])
        for places, count in _parts(calls, texts):
            body = body_of(filled(text, prompt, completion, gold, **places), model, temperature, max_tokens, extra)
            name = digest(endpoint.url, body)
            requests[name], counts[name] = body, count
            asked[-1].append(name)

    def read(name: str, said: str) -> Scores | None:
        if calls == "all":
            return find_verdicts(said, allowed, counts[name])
        score = find_score(said, allowed)
        return None if score is None else (score,)

    found, missing = _asked(endpoint, requests, read, cache_folder(cache))
    names = [name for several in asked for name in several]
    what = "criteria" if calls == "each" else "rollouts"
    _warn(endpoint.url, [missing[name] for name in names if name in missing], len(names), what)
    lists = [[score for name in several for score in found.get(name, (None,) * counts[name])] for several in asked]
    return [score for scores in lists for score in scores] if calls is None else lists


Scores = tuple[float, ...]  # in one answer


def _data(
    compares: bool, answers: Sequence[object] | None, criteria: Sequence[object] | None, rollouts: int
) -> list[tuple[str, list[str]]]:
    """The ground truth and the criteria of each rollout. Raises BadReference with all malformed ones."""

    def read(answer: object, given: object) -> tuple[str, list[str]]:
        return reference(answer) if compares else "", [] if criteria is None else criteria_of(given)

    none = [None] * rollouts
    both = zip(none if answers is None else answers, none if criteria is None else criteria, strict=True)
    return each(lambda one: read(*one), both)


def _parts(calls: str | None, criteria: Sequence[str]) -> list[tuple[dict[str, str], int]]:
    """What each request of a rollout puts into the rubric, and how many scores it asks for."""
    if calls is None:
        return [({}, 1)]
    if calls == "each":
        return [({CRITERIA[calls]: text}, 1) for text in criteria]
    return [({CRITERIA[calls]: numbered(criteria)}, len(criteria))] if criteria else []


def _asked(
    endpoint: Endpoint,
    requests: dict[str, dict[str, Any]],
    read: Callable[[str, str], Scores | None],
    folder: Path | None,
) -> tuple[dict[str, Scores], dict[str, Unanswered]]:
    """The scores of requests, from `folder` or the endpoint, and the requests without a score.

    read: the scores in an answer, given the name of its request.
    """
    from rewardspec.rewards.judge.cache import keep, recall
    from rewardspec.rewards.judge.client import Unanswered, ask_all

    held = recall(folder, requests) if folder else None
    found = _scores(held or {}, read)
    said: dict[str, str] = {}
    kept: set[str] = set()
    last = -math.inf

    def keep_new(between: float = 0.0) -> None:
        """Save new answers, if the last save was `between` seconds ago or more: an error must not lose them."""
        nonlocal last
        if folder and held is not None and time.monotonic() - last >= between:
            new = {name: said[name] for name in _scores({n: a for n, a in said.items() if n not in kept}, read)}
            keep(folder, new)
            kept.update(new)
            last = time.monotonic()

    try:
        left = {name: body for name, body in requests.items() if name not in found}
        missing = ask_all(endpoint, left, said, lambda: keep_new(_BETWEEN))
    finally:
        keep_new()
    fresh = _scores(said, read)
    for name in said.keys() - fresh.keys():
        missing[name] = Unanswered("answers without a score", said[name][-200:])
    return found | fresh, missing


def _scores(said: dict[str, str], read: Callable[[str, str], Scores | None]) -> dict[str, Scores]:
    """The scores of the answers that have them."""
    found = {name: read(name, answer) for name, answer in said.items()}
    return {name: scores for name, scores in found.items() if scores is not None}


def _warn(url: str, missing: Sequence[Unanswered], asked: int, what: str) -> None:
    """Log one line about the requests of a batch without a score, with the first detail of each cause.

    what: is asked about in one request.
    """
    if not missing:
        return
    first = {one.why: one.detail for one in reversed(missing)}
    causes = [
        f"{count} {why}" + (f" ({first[why]})" if first[why] else "")
        for why, count in Counter(one.why for one in missing).most_common()
    ]
    _LOG.warning("judge at %s: %d of %d %s have no score: %s", shown(url), len(missing), asked, what, "; ".join(causes))
