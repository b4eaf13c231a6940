"""Many chat completions at once from an OpenAI-compatible endpoint.

It uses httpx, not the `openai` client: retries, waiting times and the end of a batch are decided here, and only the
documented environment variables have an effect.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import zlib
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from rewardspec.rewards.judge.account import Request, Shared, estimated, permitted, shared
from rewardspec.rewards.judge.answer import LONGEST
from rewardspec.rewards.judge.key import Secret, hidden_in_logs
from rewardspec.rewards.judge.library import client_library
from rewardspec.text.shown import shown

if TYPE_CHECKING:
    import httpx

FIRST_PAUSE = 0.5  # seconds before the second attempt; twice as long before each further one
LONGEST_PAUSE = 120.0  # seconds, even if Retry-After is longer
LONGEST_REPLY = 4 << 20  # bytes of a decompressed reply: many times the length of a normal answer
LONGEST_REFUSAL = 1 << 16  # bytes of an error reply that are read
MOST_TOKENS = 10**9  # of one reply; more is no count of tokens
FEWEST_FAILURES = 8  # requests in a row without an answer before an endpoint counts as down

_AGAIN = {408, 409, 425, 429}  # statuses to retry, and all from 500
# errors of servers (OpenAI, vLLM, SGLang, llama.cpp, TGI, Azure) about one text, not about the settings
_TOO_LONG = re.compile(
    r"context.{0,9}(length|size|window)|(prompt|input|string|request)\b.{0,20}\btoo (long|large)|longer than the"
    r"|exceeds? the maximum number of tokens|must have less than \d+ tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content.?(filter|policy|management)", re.IGNORECASE)
BUDGET = "not sent, the budget of "
_DICE = random.Random()  # not the shared generator: draws from it would change a seeded run


class EndpointError(RuntimeError):
    """The endpoint refuses a request for good: a fault of the settings, not of a rollout."""


class Unanswered(Exception):
    """A request without an answer.

    why: the cause, the same text for many requests. detail: about this request. down: whether the endpoint may be down.
    sent: whether it was sent.
    """

    def __init__(self, why: str, detail: str = "", down: bool = False, sent: bool = True):
        super().__init__(why)
        self.why, self.detail, self.down, self.sent = why, shown(" ".join(detail.split())), down, sent

    @property
    def of_the_budget(self) -> bool:
        return self.why.startswith(BUDGET)


@dataclass(frozen=True)
class Endpoint:
    """An endpoint for chat completions.

    url: the full address. key: empty for none. timeout: seconds for one whole attempt.
    """

    url: str
    key: Secret
    concurrency: int
    timeout: float
    retries: int


@dataclass(frozen=True)
class _Answer:
    """A reply: status and reason, the body as text without our key, and the seconds of its Retry-After."""

    status: int
    reason: str
    text: str
    wait: float

    @property
    def short(self) -> str:
        """The body in one short line of visible characters."""
        return shown(" ".join(self.text.split())[:300])


_Count = Annotated[int, Field(ge=0, le=MOST_TOKENS, strict=True)]


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Reply(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]


class _Usage(BaseModel):
    prompt_tokens: _Count
    completion_tokens: _Count


class _Paid(BaseModel):
    usage: _Usage


def ask_all(
    endpoint: Endpoint,
    requests: Mapping[str, Mapping[str, Any]],
    answers: dict[str, str],
    answered: Callable[[], None] = lambda: None,
) -> dict[str, Unanswered]:
    """The requests without an answer, by name; the answers of the others are put into `answers`, even on errors.

    `answered` is called after each answer, in the client's thread. At most `concurrency` requests run at once, in a
    thread with its own event loop, so the caller may run one, too.
    Raises EndpointError, and ModuleNotFoundError without httpx.
    """
    httpx = client_library()
    try:
        httpx.URL(endpoint.url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{endpoint.url} is not an address: {error}") from None
    missing: dict[str, Unanswered] = {}
    if requests:
        _apart(_ask_all(endpoint, requests, answers, answered, missing))
    return missing


def _apart(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a separate thread; an interrupt of the waiting thread cancels it at once.

    `asyncio.run` in this thread would fail inside a running loop, and would remove a loop that a trainer has set.
    """
    handle: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None  # this is it
        handle.set_result((asyncio.get_running_loop(), task))
        await work

    with ThreadPoolExecutor(1, "judge") as pool:
        done = pool.submit(asyncio.run, main())
        try:
            done.result()
        except BaseException:
            with suppress(RuntimeError, TimeoutError):  # the loop is closed or never ran: its error is raised
                loop, task = handle.result(timeout=1)
                loop.call_soon_threadsafe(task.cancel)
            raise


async def _ask_all(
    endpoint: Endpoint,
    requests: Mapping[str, Any],
    answers: dict[str, Any],
    answered: Callable[[], None],
    missing: dict[str, Any],
) -> None:
    import httpx

    account = shared()
    left = iter(requests.items())
    failures = 0  # in a row
    # no compression: a small reply could decompress to a huge one
    headers = httpx.Headers({"Content-Type": "application/json", "Accept-Encoding": "identity"})
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
    trust = httpx.create_ssl_context()

    async def work() -> None:
        nonlocal failures
        # One client for each worker: a shared one searches all its connections for every request. The time limit is
        # for a whole attempt: httpx's limits restart with every byte.
        # Redirects are not followed: they would carry the key, or the rollout, elsewhere.
        async with httpx.AsyncClient(headers=headers, timeout=None, verify=trust, follow_redirects=False) as client:
            for name, body in left:
                if failures >= max(FEWEST_FAILURES, endpoint.concurrency):
                    missing[name] = Unanswered("not sent, the endpoint seems to be down", down=True, sent=False)
                    continue
                try:
                    answers[name] = await _ask(client, endpoint, body, account)
                    answered()
                    failures = 0
                except Unanswered as error:
                    missing[name] = error
                    if error.sent:
                        failures = failures + 1 if error.down else 0

    try:
        with hidden_in_logs(endpoint.key):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(endpoint.concurrency, len(requests))):
                    group.create_task(work())
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def _ask(client: httpx.AsyncClient, endpoint: Endpoint, body: Mapping[str, Any], account: Shared) -> str:
    """The text that the model wrote, as much of its end as is read. Raises Unanswered, EndpointError."""
    import httpx

    content = json.dumps(body).encode()
    model = str(body["model"])
    prompt, most = estimated(content, body)
    failure: Unanswered | None = None
    for attempt in range(endpoint.retries + 1):
        asked = 0.0
        permit = await permitted(account, Request(model, prompt, most or 0, attempt > 0))
        if permit.spent:
            raise failure or Unanswered(f"{BUDGET}{permit.spent} is spent", sent=False)
        said: tuple[int, int] | None = None
        try:
            async with asyncio.timeout(endpoint.timeout):
                answer = await _answer(client, endpoint, content)
            good = 200 <= answer.status < 300
            said = _said(answer) if good else (0, 0)
        except TimeoutError:
            failure = Unanswered(f"timed out after {endpoint.timeout:g} s", down=True)
        except httpx.RequestError as error:
            words = endpoint.key.hide(f"{type(error).__name__}: {error}")
            failure = Unanswered("connections failed", words[:200], down=True)
        else:
            if good:
                return _text(endpoint, answer)[-LONGEST:]
            failure = _failure(endpoint, answer)
            asked = answer.wait
        finally:
            await account.settle(permit.number, model, said)
        if attempt < endpoint.retries:
            pause = min(FIRST_PAUSE * 2.0**attempt, LONGEST_PAUSE) * _DICE.uniform(0.5, 1.0)
            await asyncio.sleep(max(pause, min(asked, LONGEST_PAUSE) * _DICE.uniform(1.0, 1.1)))
    assert failure is not None, "there is at least one attempt"
    raise failure


def _said(answer: _Answer) -> tuple[int, int] | None:
    """The tokens that a reply says it read and wrote; None if it does not say."""
    try:
        usage = _Paid.model_validate_json(answer.text).usage
    except ValidationError:
        return None
    return usage.prompt_tokens, usage.completion_tokens


async def _answer(client: httpx.AsyncClient, endpoint: Endpoint, content: bytes) -> _Answer:
    """The reply to one request. Raises Unanswered for a body that is too long, and httpx's RequestError."""
    async with client.stream("POST", endpoint.url, content=content) as response:
        text = (await _body(response)).decode("utf-8", "replace")
    return _Answer(
        response.status_code,
        shown(endpoint.key.hide(response.reason_phrase)),
        endpoint.key.hide(text),
        _retry_after(response),
    )


async def _body(response: httpx.Response) -> bytes:
    """The body, decompressed while it is read. Raises Unanswered if it is too long; the body of an error is cut."""
    import httpx

    most = LONGEST_REPLY if response.is_success else LONGEST_REFUSAL
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise Unanswered("replies are compressed, but no compression was accepted", down=True)
    inflate = zlib.decompressobj(32 + zlib.MAX_WBITS) if encoding not in ("", "identity") else None
    parts: list[bytes] = []
    size = sent = 0
    async for chunk in response.aiter_raw():
        try:
            parts.append(inflate.decompress(chunk, most + 1 - size) if inflate else chunk)
        except zlib.error as error:
            raise httpx.DecodingError(str(error)) from None
        size, sent = size + len(parts[-1]), sent + len(chunk)
        if max(size, sent) > most:
            if response.is_success:
                raise Unanswered(f"replies are longer than {most >> 20} MiB")
            break
    return b"".join(parts)[:most]


def _failure(endpoint: Endpoint, answer: _Answer) -> Unanswered:
    """The failure of an attempt that may be retried.

    Raises Unanswered if this request would fail again, EndpointError if all requests would.
    """
    status, said = answer.status, answer.short
    if (status in _AGAIN or status >= 500) and "insufficient_quota" not in answer.text:
        return Unanswered(f"had status {status}", said, down=True)
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(answer.text)):
        raise Unanswered("too long for the judge", said)
    if status in (400, 422) and _FILTERED.search(answer.text):
        raise Unanswered("refused by the endpoint's filter", said)
    hint = " (no key was sent)" if status == 401 and not endpoint.key else ""
    raise EndpointError(f"judge at {endpoint.url}: status {status} {answer.reason}{hint}: {said}")


def _text(endpoint: Endpoint, answer: _Answer) -> str:
    """The text that the model wrote, without our key (JSON may have hidden it in escapes). Raises Unanswered."""
    try:
        choice = _Reply.model_validate_json(answer.text).choices[0]
    except ValidationError:
        raise Unanswered("replies are not chat completions", answer.short) from None
    if choice.finish_reason == "length":
        raise Unanswered("cut off at max_tokens")
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise Unanswered("refused by the judge", endpoint.key.hide(choice.message.refusal or "")[:200])
    return endpoint.key.hide(choice.message.content or "")


def _retry_after(response: httpx.Response) -> float:
    """The seconds of Retry-After; 0 without it."""
    value = response.headers.get("Retry-After", "")
    with suppress(ValueError):
        return max(float(value), 0.0) if math.isfinite(float(value)) else 0.0
    with suppress(ValueError, TypeError, OverflowError):
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    return 0.0
