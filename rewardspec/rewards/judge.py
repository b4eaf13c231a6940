"""A language model as judge: what it is asked, and which score it gives.

How it is asked is in `judge_client`, what it has answered before in `judge_cache`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field
from ruamel.yaml import YAML

from rewardspec.ops.domain import Domain, finite
from rewardspec.resources import resource
from rewardspec.rewards.judge_answer import find_score
from rewardspec.rewards.judge_key import Secret, key_for
from rewardspec.rewards.reward import BadReference, each, reward
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    from rewardspec.rewards.judge_client import Endpoint, Unanswered

_LOG = logging.getLogger(__name__)
_BETWEEN = 0.5  # seconds between two writes of what was answered
_PLACES = ("prompt", "completion", "answer", "fence")
_PLACE = re.compile(r"\{(" + "|".join(_PLACES) + r")\}")
_CONTROL_TOKEN = re.compile(r"<(?=([|｜])[^<>|｜\s]{1,40}\1>)")  # of Qwen, Llama, gpt-oss, DeepSeek
_OWN_FIELDS = ("messages", "model", "temperature", "max_tokens", "stream", "n")

Score = Annotated[float, Field(allow_inf_nan=False)]


def _domain(
    *, template: str, scores: Sequence[float] | str, url: str | None, extra: dict | None, **_: object
) -> Domain:
    _, allowed = _rubric(template, scores)
    _check(extra)
    if url is not None:
        _address(url, "`url`")
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
    """The score that a language model gives each rollout by a rubric; None where it gave none.

    template: the name of a rubric in `specs/rubrics`, or a text with `{completion}` and, as needed, `{prompt}`,
    `{answer}` and `{fence}` in it, a mark that no completion can know beforehand. It should ask for a last line
    `Score: X`; JSON with a key `score` and a lone number as last line are understood as well. Only numbers in
    `scores` count, which is the rubric's own for one that ships and has to be said for any other.
    url: of an OpenAI-compatible endpoint, as `http://localhost:8000/v1`; else OPENAI_BASE_URL. key: OPENAI_API_KEY of
    the environment, if that is set, or `none`. It goes to the host of OPENAI_BASE_URL (OpenAI's own where that is not
    set) and to those in REWARDSPEC_KEY_HOSTS; for any other ValueError is raised.
    temperature, max_tokens: null leaves them to the endpoint.
    extra: further fields of a request, such as `{reasoning_effort: low}`.
    timeout: seconds for one attempt. retries: attempts after the first, on 429, 5xx, time-outs and broken
    connections, with growing pauses.
    cache: a folder on a local disk for answers to be had again, `user` for one in the user's cache, or `none`.

    answers: texts, lists of texts, or numbers; only read by a template with `{answer}`. BadReference is raised for
    anything else, ValueError for settings that make no sense, EndpointError if the endpoint refuses (400, 401, 404).
    Source: PAPO, Sec. 2.2 and App. A.3; PRS, App. B.
    """
    from rewardspec.rewards.judge_client import Endpoint

    text, allowed = _rubric(template, scores)
    _check(extra)
    address = _endpoint_url(url)
    endpoint = Endpoint(address, Secret("") if key == "none" else key_for(address), concurrency, timeout, retries)
    compares = "{answer}" in text
    golds = each(_reference, answers if answers is not None else [None] * len(completions)) if compares else None
    bodies = [
        _request(_filled(text, prompt, completion, gold), model, temperature, max_tokens, extra)
        for prompt, completion, gold in zip(prompts, completions, golds or [""] * len(completions), strict=True)
    ]
    names = [_name(endpoint.url, body) for body in bodies]
    found, missing = _judged(endpoint, dict(zip(names, bodies, strict=True)), allowed, _cache_folder(cache))
    _warn(endpoint.url, [missing[name] for name in names if name in missing], len(names))
    return [found.get(name) for name in names]


def _judged(
    endpoint: Endpoint, requests: dict[str, dict], allowed: Sequence[float], folder: Path | None
) -> tuple[dict[str, float], dict[str, Unanswered]]:
    """The scores of the requests that have one, from `folder` or the endpoint, and what is wrong with the others."""
    from rewardspec.rewards.judge_cache import keep, recall
    from rewardspec.rewards.judge_client import Unanswered, ask_all

    held = recall(folder, requests) if folder else None
    found = _scores(held or {}, allowed)
    said: dict[str, str] = {}
    kept: set[str] = set()
    last = -math.inf

    def keep_new(between: float = 0.0) -> None:
        """Keep the answers that came since `between` seconds ago or more: they are paid for, whatever comes."""
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
    """The scores of those answers that have one."""
    read = {name: find_score(answer, allowed) for name, answer in said.items()}
    return {name: score for name, score in read.items() if score is not None}


def _warn(url: str, missing: Sequence[Unanswered], rollouts: int) -> None:
    """One line on all rollouts of the batch without a score, with the first detail of each cause."""
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


@lru_cache(maxsize=64)
def _shipped(name: str) -> tuple[str, tuple[float, ...]]:
    """Text and scores of a rubric in `specs/rubrics`. Raises ValueError."""
    known = {path.stem: path for path in resource("specs/rubrics").glob("*.md")}
    if name not in known:
        raise ValueError(
            f"`template`: no rubric is named `{name}`; there are {', '.join(sorted(known))}, "
            "or write the text of one, with `{completion}` in it"
        )
    _, head, text = known[name].read_text(encoding="utf-8").split("---\n", 2)
    return text.strip(), tuple(float(score) for score in YAML(typ="safe").load(head)["scores"])


def _rubric(template: str, scores: Sequence[float] | str) -> tuple[str, tuple[float, ...]]:
    """The text to be filled in, and what it can give. Raises ValueError."""
    if re.fullmatch(r"[\w-]*", template):
        text, own = _shipped(template)
        if scores != "rubric" and set(scores) != set(own):
            given = ", ".join(f"{score:g}" for score in own)
            raise ValueError(f"`scores`: the rubric `{template}` gives {given}; leave `scores` out")
        return text, own
    if "{completion}" not in template:
        raise ValueError("`template` has no `{completion}` in it, so it would judge nothing")
    for word in re.findall(r"\{(\w+)\}", template):
        near = difflib.get_close_matches(word.lower(), _PLACES, n=1, cutoff=0.8)
        if near and word not in _PLACES:
            raise ValueError(f"`template` has `{{{word}}}` in it; did you mean `{{{near[0]}}}`?")
    if isinstance(scores, str):
        raise ValueError("`scores` has to name the numbers that a rubric of your own can give, such as [0, 0.5, 1]")
    return template, tuple(scores)


def _filled(text: str, prompt: str, completion: str, answer: str) -> str:
    """The rubric about one rollout; what is put in is not looked at again."""
    # the mark depends on all of the text, so a completion cannot contain its own and close the fence
    whole = "\0".join((prompt, completion, answer)).encode("utf-8", "surrogatepass")
    values = {"prompt": prompt, "completion": completion, "answer": answer}
    # a server that reads control tokens anywhere would take `<|im_end|>` for the end of our message
    values = {place: _CONTROL_TOKEN.sub("< ", value) for place, value in values.items()}
    values["fence"] = hashlib.sha256(whole).hexdigest()[:12]
    return _PLACE.sub(lambda place: values[place[1]], text)


def _reference(answer: object) -> str:
    """A ground truth as the judge reads it, a line each if there are several."""
    if isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer):
        return str(answer)
    golds = [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, list | tuple) else []
    if not golds or not all(isinstance(gold, str) and gold.strip() for gold in golds):
        raise BadReference(
            "the rubric compares with `answer`, which is a text, a list of texts or a number, none of them empty, "
            f"not {answer!r:.80}"
        )
    return golds[0] if len(golds) == 1 else "\n".join(f"- {gold}" for gold in golds)


def _request(text: str, model: str, temperature: float | None, max_tokens: int | None, extra: dict | None) -> dict:
    """The body of a request."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # JSON in UTF-8 has no lone surrogates
    body = {"model": model, "messages": [{"role": "user", "content": whole}]}
    sampling = {"temperature": temperature, "max_tokens": max_tokens}
    return body | {key: value for key, value in sampling.items() if value is not None} | (extra or {})


def _check(extra: dict | None) -> None:
    """Raises ValueError for fields of a request that are not for `extra` to say, or that JSON does not have."""
    clash = sorted({*(extra or {})} & {*_OWN_FIELDS})
    if clash:
        raise ValueError(f"`extra` cannot set {', '.join(clash)}")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"`extra` holds what JSON cannot: {error}") from None


def _name(url: str, body: dict) -> str:
    """What identifies a request: everything that its answer depends on."""
    return hashlib.sha256(json.dumps([url, body], sort_keys=True).encode()).hexdigest()


def _endpoint_url(url: str | None) -> str:
    if url is not None:
        return _address(url, "`url`")
    if not os.environ.get("OPENAI_BASE_URL"):
        raise ValueError("no judge to ask: give `url`, such as http://localhost:8000/v1, or set OPENAI_BASE_URL")
    return _address(os.environ["OPENAI_BASE_URL"], "OPENAI_BASE_URL")


def _address(url: str, where: str) -> str:
    """The address to be asked. Raises ValueError."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        odd = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        odd = odd or "@" in parts.netloc or "?" in url or "#" in url or " " in url or not url.isprintable()
    except ValueError:
        odd = True
    if odd:
        raise ValueError(
            f"{where} is an address such as http://localhost:8000/v1, without user name, password or query; "
            "a key is read from OPENAI_API_KEY"
        )
    return url.rstrip("/") + "/chat/completions"


def _cache_folder(cache: str) -> Path | None:
    if cache == "none":
        return None
    if cache == "user":
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rewardspec"
    return Path(cache).expanduser()
