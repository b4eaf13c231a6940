"""How a judge is asked: failures that pass, that stay, and that stop a batch; many requests at once."""

import asyncio
import random
import signal
import socket
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from judge_server import OWN, TIERS, Reply, asked, failed, said, serving, surroundings, verdicts, warnings

from rewardspec.rewards import find_reward
from rewardspec.rewards.judge import client as judge_client
from rewardspec.rewards.judge import rubric
from rewardspec.rewards.judge.client import EndpointError

pytestmark = pytest.mark.usefixtures("surroundings")
__all__ = ["surroundings"]


# failures that pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure",
    [failed(500), failed(503), failed(429), Reply(hang_up=True), Reply(delay=3)],
    ids=["500", "503", "429", "broken connection", "too slow"],
)
def test_passing_failures_are_asked_again(failure, caplog):
    with serving(lambda text, before: failure if before < 2 else verdicts(text, before)) as server:
        assert asked(server, ["grade:0.5"], retries=2, timeout=1 if failure.delay else 60) == [0.5]
    assert len(server.asked) == 3
    assert not warnings(caplog)


@pytest.mark.slow
def test_pauses_between_attempts_grow(monkeypatch):
    monkeypatch.setattr(judge_client, "FIRST_PAUSE", 0.1)
    with serving(lambda text, before: failed(500) if before < 3 else verdicts(text, before)) as server:
        assert asked(server, ["grade:1"], retries=3) == [1]
    pauses = [later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)]
    for pause, whole in zip(pauses, (0.1, 0.2, 0.4), strict=True):
        assert whole / 2 <= pause < whole + 2  # half to all of it, and the time of a request


@pytest.mark.slow
def test_retry_after_is_honoured():
    with serving(lambda text, before: verdicts(text, before) if before else failed(429, Retry_After="0.5")) as server:
        assert asked(server, ["grade:1"]) == [1]
    assert server.times[1] - server.times[0] >= 0.5


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("7", 7, 7),
        ("in an hour", 3500, 3600),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("-3", 0, 0),
        ("nan", 0, 0),
        ("inf", 0, 0),
        ("soon", 0, 0),
        ("Mon, 01 Jan 2024 00:00:00 +999999999999999999999", 0, 0),
        ("", 0, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, least, most):
    if value == "in an hour":
        value = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert least <= judge_client._retry_after(httpx.Response(429, headers={"Retry-After": value})) <= most


# rollouts that have no score


def test_failure_that_stays_is_a_missing_value_and_one_warning(caplog):
    def answer(text, before):
        return failed(503, "no room") if "bad" in text else verdicts(text, before)

    with serving(answer) as server:
        scores = asked(server, ["grade:1", "bad 1", "grade:0", "bad 2"], retries=1)
    assert scores == [1, None, 0, None]
    assert len(server.asked) == 2 + 2 * 2
    (line,) = warnings(caplog)
    assert "2 of 4 rollouts have no score: 2 had status 503" in line
    assert server.url in line and "no room" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (said("I like it"), "answers without a score (I like it)"),
        (said("Score: 7"), "answers without a score"),
        (said("Score: 1", finish="length"), "cut off at max_tokens"),
        (said(None, finish="length"), "cut off at max_tokens"),
        (said(None), "answers without a score"),
        (said(None, refusal="I will not. Score: 1"), "refused by the judge (I will not"),
        (said("Score: 1", finish="content_filter"), "refused by the judge"),
        (Reply(body=b'{"choices": []}'), "not chat completions"),
        (Reply(body=b'{"error": {"message": "overloaded"}}'), "not chat completions"),
        (Reply(body=b'{"choices": [{"message": "Score: 1"}]}'), "not chat completions"),
        (Reply(body=b'{"choices": [{"message": {"content": "Score: 1"'), "not chat completions"),
        (Reply(body=b"Score: 1"), "not chat completions"),
        (Reply(body=b"[" * 100_000), "not chat completions"),
        (Reply(body=b"\xff\xfe\x00"), "not chat completions"),
        (Reply(body=b""), "not chat completions"),
        (Reply(body=b'{"choices": [{"message": {"content": "\\ud800 Score: 1"}}]}'), "not chat completions"),
        (Reply(body=b"junk", headers={"Content-Encoding": "gzip"}), "connections failed"),
        (Reply(delay=3), "timed out after 1 s"),
        (failed(413), "too long"),
        (failed(400, "This model's maximum context length is 8192 tokens. However, you requested 9000"), "too long"),
        (failed(400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."), "too long"),
        (failed(400, "no", code="context_length_exceeded"), "too long"),
        (failed(400, "The response was filtered", code="content_filter"), "refused by the endpoint's filter"),
    ],
)
def test_what_is_no_verdict_is_missing_for_this_rollout_alone(reply, cause, caplog):
    with serving(lambda text, before: reply if "bad" in text else verdicts(text, before)) as server:
        assert asked(server, ["grade:1", "bad", "grade:0.5"], retries=0, timeout=1 if reply.delay else 60) == [
            1,
            None,
            0.5,
        ]
    (line,) = warnings(caplog)
    assert "1 of 3 rollouts have no score: 1 " in line and cause in line
    assert len(server.asked) == 3


HOSTILE = "no idea\x1b[31m\u202e\n::error::mine"


@pytest.mark.parametrize("reply", [said(HOSTILE), said(None, refusal=HOSTILE), Reply(500, HOSTILE.encode())])
def test_what_an_endpoint_says_is_logged_as_text(reply, caplog):
    with serving(lambda *_: reply) as server:
        assert asked(server, ["a"], retries=0) == [None]
    (line,) = warnings(caplog)
    assert line.isprintable() and "\\x1b[31m\\u202e ::error::mine" in line
    with serving(lambda *_: Reply(400, HOSTILE.encode())) as server, pytest.raises(EndpointError) as error:
        asked(server, ["a"], retries=0)
    assert str(error.value).isprintable()


def test_refused_connections_are_missing_values(caplog):
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        assert rubric(["p"] * 2, ["a", "b"], url=url, **OWN) == [None, None]
    (line,) = warnings(caplog)
    assert "2 of 2 rollouts have no score: 2 connections failed (ConnectError" in line


def test_endpoint_that_is_down_is_not_asked_about_every_rollout(caplog):
    with serving(lambda *_: failed(500)) as server:
        assert asked(server, [str(i) for i in range(100)], retries=0, concurrency=4) == [None] * 100
    assert 8 <= len(server.asked) <= 8 + 4
    (line,) = warnings(caplog)
    assert "100 of 100" in line and "not sent" in line


# faults of the settings


@pytest.mark.parametrize(
    "reply",
    [
        failed(400, "unknown field"),
        failed(400, "max_tokens is too large: 99999"),
        failed(401),
        failed(403),
        failed(404),
        failed(422),
        Reply(307, headers={"Location": "/v2"}),
        failed(429, "You exceeded your quota", code="insufficient_quota"),
    ],
    ids=lambda reply: f"{reply.status}",
)
def test_refusals_of_the_endpoint_are_one_error_at_once(reply):
    with serving(lambda *_: reply) as server, pytest.raises(EndpointError) as error:
        asked(server, [str(i) for i in range(100)], concurrency=4)
    assert f"{server.url}/chat/completions: status {reply.status}" in str(error.value)
    assert len(server.asked) <= 8


def test_refusals_never_show_the_key_and_say_when_there_is_none(monkeypatch):
    with serving(lambda *_: failed(401, "wrong key: sk-secret")) as server:
        with pytest.raises(EndpointError, match="no key was sent"):
            asked(server, ["a"])
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(EndpointError, match=r"wrong key: \*\*\*") as error:
            asked(server, ["a"])
    assert "sk-secret" not in str(error.value) and "not set" not in str(error.value)


def test_refusal_ends_requests_that_are_still_under_way():
    with serving(lambda text, _: failed(401) if text == "b" else Reply(delay=5)) as server:
        start = time.monotonic()
        with pytest.raises(EndpointError):
            asked(server, ["a", "b"])
        assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000/v1",
        "ftp://host/v1",
        "http://",
        "http://u:p@host/v1",
        "http://host/v1?key=1",
        "http://h:99999",
        "http://a b/v1",
        "",
        "[",
        "http://[::1",
    ],
)
def test_addresses_that_cannot_be_asked_are_refused(url, monkeypatch):
    with pytest.raises(ValueError, match="must be an address such as"):
        rubric(["p"], ["c"], url=url, **OWN)
    with pytest.raises(ValueError, match="must be an address such as"):
        find_reward("judge.rubric").domain(**find_reward("judge.rubric").options(OWN | {"url": url}))
    if url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(ValueError, match="OPENAI_BASE_URL must be an address such as"):
            rubric(["p"], ["c"], **OWN)


def test_host_name_that_cannot_be_written_is_refused():
    with pytest.raises(ValueError, match="is not an address"):
        rubric(["p"], ["c"], url="http://xn--\u0130/v1", **OWN)


def test_without_an_endpoint_nothing_is_asked_anywhere():
    with pytest.raises(ValueError, match="set `url`, such as http://localhost:8000/v1, or OPENAI_BASE_URL"):
        rubric(["p"], ["c"], **OWN)


def test_key_with_a_line_break_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-se\ncret")
    with pytest.raises(ValueError, match="OPENAI_API_KEY has characters") as error:
        rubric(["p"], ["c"], url="http://localhost:1/v1", **OWN)
    assert "cret" not in str(error.value)


def test_missing_client_is_said_with_the_way_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rewardspec\[rewards\]'"):
        rubric(["p"], ["c"], url="http://localhost:1/v1", **OWN)


# many at once


@pytest.mark.slow
def test_no_more_requests_are_under_way_than_allowed():
    def answer(text, before):
        return Reply(200, verdicts(text, before).body, delay=0.05)

    with serving(answer) as server:
        assert asked(server, [f"{i} grade:1" for i in range(20)], concurrency=4) == [1] * 20
    assert server.most == 4


@pytest.mark.slow
def test_as_many_requests_are_under_way_as_allowed():
    everybody = threading.Barrier(110)  # none is answered before all are there

    def answer(text, before):
        everybody.wait(timeout=20)
        return verdicts(text, before)

    with serving(answer) as server:
        assert asked(server, [f"{i} grade:1" for i in range(110)], concurrency=110, retries=0) == [1] * 110


def test_judge_can_be_asked_inside_a_running_event_loop():
    async def train(server):
        return asked(server, ["grade:0.5", "grade:1"]), asyncio.get_running_loop().is_running()

    with serving(verdicts) as server:
        assert asyncio.run(train(server)) == ([0.5, 1], True)


def test_event_loop_of_the_callers_thread_stays_as_it_is():
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        with serving(verdicts) as server:
            assert asked(server, ["grade:1"]) == [1]
        assert asyncio.get_event_loop() is loop and not loop.is_closed()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_judge_can_be_asked_from_several_threads():
    found = {}
    with serving(verdicts) as server:
        threads = [
            threading.Thread(target=lambda i=i: found.update({i: asked(server, [f"{i} grade:{TIERS[i]}"])}))
            for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {0: [0], 1: [0.5], 2: [1]}


@pytest.fixture
def interrupts():
    """Ctrl-C as in a terminal: a shell has it ignored in what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interrupts")
def test_interrupt_ends_a_batch_at_once():
    with serving(lambda *_: Reply(delay=10)) as server:
        start = time.monotonic()
        timer = threading.Timer(0.5, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            asked(server, ["a"])
        assert time.monotonic() - start < 5
        timer.join()


def test_shared_random_numbers_stay_as_they_are():
    random.seed(3)
    expected = random.Random(3).random()
    with serving(lambda text, before: verdicts(text, before) if before else failed(500)) as server:
        assert asked(server, ["grade:1"]) == [1]
    assert random.random() == expected
