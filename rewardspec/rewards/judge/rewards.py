"""`judge.rubric`: the score that a language model gives by a rubric, or one for each criterion of a list."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from rewardspec.ops.domain import Domain, finite
from rewardspec.rewards.judge.asking import Plan, Rollout, Rubric
from rewardspec.rewards.judge.key import Secret, key_for
from rewardspec.rewards.judge.request import address_of, body_of, check_extra, endpoint_url
from rewardspec.rewards.judge.template import criteria_of, reference, rubric_text
from rewardspec.rewards.reward import Call, each, reward

Score = Annotated[float, Field(allow_inf_nan=False)]


def _domain(
    *,
    template: str,
    scores: Sequence[float] | str,
    calls: str | None,
    per_call: int | None,
    url: str | None,
    extra: dict[str, Any] | None,
    listed: bool = False,
    **_: Any,
) -> Domain:
    if calls is not None and not listed:
        raise ValueError("`calls` is for a list of criteria: add `criteria` and `level`")
    check_per_call(per_call, calls)
    _text, allowed = rubric_text(template, scores, (calls or "each") if listed else None)
    check_extra(extra)
    if url is not None:
        address_of(url, "`url`")
    return finite([Fraction(repr(float(score))) for score in allowed])


def _calls(
    prompts: Sequence[str],
    completions: Sequence[str],
    answers: Sequence[Any] | None = None,
    criteria: Sequence[object] | None = None,
    **options: Any,
) -> list[Call]:
    """The requests that `rubric` would send."""
    return _plan(prompts, completions, answers, criteria, **options).recalled()


def check_per_call(per_call: int | None, calls: str | None) -> None:
    """Raise ValueError for a number of criteria in a call where calls are about one, or about none."""
    if per_call is not None and calls != "all":
        raise ValueError("`per_call` is the most criteria in one call: add `calls: all`, or remove `per_call`")


@reward(
    "judge.rubric",
    domain=_domain,
    inputs=("prompt", "completion", "answer", "criteria"),
    many=True,
    items="criteria",
    calls=_calls,
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
    per_call: Annotated[int, Field(ge=1)] | None = None,
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
    a JSON list of as many scores, else all are None. per_call: with `all`, at most so many criteria in one request;
    those that get no score are asked about once more, without the others or in halves.
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
    scores_of = _plan(
        prompts,
        completions,
        answers,
        criteria,
        template=template,
        model=model,
        scores=scores,
        calls=calls,
        per_call=per_call,
        url=url,
        key=key,
        temperature=temperature,
        max_tokens=max_tokens,
        extra=extra,
        concurrency=concurrency,
        timeout=timeout,
        retries=retries,
        cache=cache,
    ).scores()
    return scores_of if criteria is not None else [score for (score,) in scores_of]


def _plan(
    prompts: Sequence[str],
    completions: Sequence[str],
    answers: Sequence[Any] | None,
    criteria: Sequence[object] | None,
    *,
    template: str,
    model: str,
    scores: Sequence[float] | str,
    calls: str | None,
    per_call: int | None,
    url: str | None,
    key: str,
    temperature: float | None,
    max_tokens: int | None,
    extra: dict[str, Any] | None,
    concurrency: int,
    timeout: float,
    retries: int,
    cache: str,
) -> Plan:
    """The requests of `rubric`, none of which is sent yet. Raises what `rubric` does, but EndpointError."""
    from rewardspec.rewards.judge.cache import cache_folder
    from rewardspec.rewards.judge.client import Endpoint

    calls = None if criteria is None else calls or "each"
    check_per_call(per_call, calls)
    text, allowed = rubric_text(template, scores, calls)
    check_extra(extra)
    address = endpoint_url(url)
    endpoint = Endpoint(address, Secret("") if key == "none" else key_for(address), concurrency, timeout, retries)
    data = _data("{answer}" in text, answers, criteria, len(completions))

    def body(filled: str) -> dict[str, Any]:
        return body_of(filled, model, temperature, max_tokens, extra)

    rollouts = [
        Rollout(prompt, completion, gold, texts)
        for prompt, completion, (gold, texts) in zip(prompts, completions, data, strict=True)
    ]
    return Plan(Rubric(endpoint, text, allowed, calls, per_call, body, cache_folder(cache)), rollouts)


def _data(
    compares: bool, answers: Sequence[object] | None, criteria: Sequence[object] | None, rollouts: int
) -> list[tuple[str, list[str]]]:
    """The ground truth and the criteria of each rollout. Raises BadReference with all malformed ones."""

    def read(answer: object, given: object) -> tuple[str, list[str]]:
        return reference(answer) if compares else "", [] if criteria is None else criteria_of(given)

    none = [None] * rollouts
    both = zip(none if answers is None else answers, none if criteria is None else criteria, strict=True)
    return each(lambda one: read(*one), both)
