"""A judge's key goes where the user sends it and nowhere else, and shows in nothing that comes back."""

import gzip
import json
import logging
import pickle
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest
from judge_server import Reply, asked, failed, said, serving, surroundings, verdicts, warnings
from typer.testing import CliRunner

from rewardspec.cli import app
from rewardspec.rewards.judge import client as judge_client
from rewardspec.rewards.judge import key as judge_key
from rewardspec.rewards.judge.answer import LONGEST, find_score
from rewardspec.rewards.judge.client import EndpointError
from rewardspec.rewards.judge.key import Secret, key_for, origin

__all__ = ["surroundings"]

KEY = "sk-proj-Zx9+Qw/7LmNoPqRsTuVwXyZ0123456789=="


@pytest.fixture(autouse=True)
def key(monkeypatch, surroundings):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(judge_key, "_allowed", set())


# where it goes


def test_endpoint_that_a_spec_names_gets_no_key_unless_the_user_says_so(monkeypatch):
    with serving(verdicts) as server:
        host = server.url.removesuffix("/v1")
        with pytest.raises(ValueError, match=f"REWARDSPEC_KEY_HOSTS={host}") as error:
            asked(server, ["grade:1"])
        assert KEY not in str(error.value) and not server.asked
        monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
        with pytest.raises(ValueError, match=r"belongs to http://localhost:1, but would be sent to http://127"):
            asked(server, ["grade:1"])
        assert asked(server, ["grade:1"], key="none") == [1]
        monkeypatch.setenv("REWARDSPEC_KEY_HOSTS", f"other.example, {host}")
        assert asked(server, ["grade:1"]) == [1]
        monkeypatch.delenv("REWARDSPEC_KEY_HOSTS")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{host}/another/path")
        assert asked(server, ["grade:1"]) == [1]
        monkeypatch.delenv("OPENAI_BASE_URL")
        judge_key.allow_key(host)
        assert asked(server, ["grade:1"]) == [1]
    assert server.keys == [None, *[f"Bearer {KEY}"] * 3]


@pytest.mark.parametrize(
    ("base", "url", "goes"),
    [
        (None, "https://api.openai.com/v1", True),
        (None, "https://API.OpenAI.com:443/v1/", True),
        (None, "http://api.openai.com/v1", False),  # in the clear
        (None, "https://api.openai.com.evil.example/v1", False),
        (None, "https://evil.example/api.openai.com/v1", False),
        (None, "https://api.openai.com:8443/v1", False),
        (None, "https://api.openai.com\\.evil.example/v1", False),
        ("https://mine.example/v1", "https://mine.example/v2", True),
        ("https://mine.example/v1", "https://api.openai.com/v1", False),
        ("https://mine.example/v1", "https://sub.mine.example/v1", False),
        ("https://mine.example", "https://mine.example./v1", False),
        ("http://localhost:8000/v1", "http://localhost:8001/v1", False),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", True),
    ],
)
def test_key_belongs_to_scheme_host_and_port(base, url, goes, monkeypatch):
    if base:
        monkeypatch.setenv("OPENAI_BASE_URL", base)
    if goes:
        assert key_for(url).reveal() == KEY
    else:
        with pytest.raises(ValueError):
            key_for(url)


def test_host_that_cannot_be_read_is_refused_without_being_shown():
    for address in ("https://user:hunter2@host", "ftp://host", "https://", "https://a\nb"):
        with pytest.raises(ValueError, match="as https://host") as error:
            origin(address)
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_carries_the_key_nowhere(status, monkeypatch):
    with serving(verdicts) as other, serving(lambda *_: Reply(status, headers={"Location": target})) as server:
        target = f"{other.url}/chat/completions"
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(EndpointError, match=f"status {status}"):
            asked(server, ["grade:1"])
    assert server.asked and not other.asked


def test_score_sends_the_key_where_its_command_line_says(tmp_path):
    spec, rows = tmp_path / "spec.yaml", tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": "p", "completion": f"grade:{i}", "group": 0}) + "\n" for i in (0, 1)))
    with serving(verdicts) as server:
        options = {"template": "{completion}", "model": "m", "scores": [0, 1], "cache": "none", "url": server.url}
        judge = json.dumps({"use": "judge.rubric", "with": options})
        spec.write_text(f"rewardspec: 1\ncomponents:\n  j: {judge}\nadvantage: grpo\n")
        command = ["score", str(spec), str(rows), "-o", str(tmp_path / "out.jsonl")]
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 2 and "--key-host" in refused.output and KEY not in refused.output
        assert not server.asked
        done = CliRunner().invoke(app, [*command, "--key-host", server.url])
    assert done.exit_code == 0, done.output
    assert server.keys == [f"Bearer {KEY}"] * 2


# where it shows


def _echoes():
    """Replies that repeat the key in all the places that a reply has."""
    percent = "sk-proj-Zx9%2BQw%2F7LmNoPqRsTuVwXyZ0123456789%3D%3D"
    escaped = "".join(f"\\u{ord(c):04x}" for c in KEY)
    cut = KEY[:30]
    for text in (
        KEY,
        f"Bearer {KEY}",
        percent,
        cut,
        f"x{KEY}x",
        f"{'y' * 185}{KEY}",
        f"{'z ' * 140}{KEY}",
        "\n".join([KEY] * 9),
    ):
        yield failed(401, text)
        yield failed(400, f"context length {text}")
        yield failed(400, f"content filter {text}")
        yield failed(500, text)
        yield said(f"I was asked with {text}")
        yield said(f"I was asked with {text}\nScore: 1")
        yield said(None, refusal=text)
        yield Reply(body=text.encode())
        yield Reply(401, text.encode())
    body = json.dumps({"choices": [{"message": {"content": "KEY no score"}}]}).replace("KEY", escaped)
    yield Reply(body=body.encode())
    yield Reply(body=body.replace("content", "refusal").encode())
    yield Reply(401, KEY.encode(), {"Content-Encoding": KEY})
    yield Reply(body=b"{}", headers={"Content-Encoding": KEY})
    yield Reply(401, gzip.compress(KEY.encode()), {"Content-Encoding": "gzip"})
    yield Reply(401, zlib.compress(KEY.encode()), {"Content-Encoding": "deflate"})
    yield Reply(307, headers={"Location": f"http://localhost/{KEY}"})


def shows(text):
    return any(KEY[i : i + 12] in text for i in range(len(KEY) - 12)) or "%2BQw%2F" in text


@pytest.mark.slow
def test_key_shows_nowhere_whatever_the_endpoint_repeats(monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    replies = list(_echoes())
    with serving(lambda text, _: replies[int(text)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for i in range(len(replies)):
            try:
                asked(server, [str(i)], retries=0, cache=str(tmp_path / "cache"))
            except EndpointError as error:
                assert not shows(str(error)) and not shows(repr(error)), i
    assert len(server.keys) == len(replies) and {*server.keys} == {f"Bearer {KEY}"}
    for record in caplog.records:
        if record.name.startswith("rewardspec") or record.levelno >= logging.INFO:
            assert not shows(record.getMessage()), record
    assert len(warnings(caplog)) > 20
    assert not any(shows(path.read_bytes().decode("latin-1")) for path in (tmp_path / "cache").iterdir())
    assert any(b"***" in path.read_bytes() for path in (tmp_path / "cache").iterdir())


def test_key_shows_in_no_reason_phrase(monkeypatch, caplog):
    """A status line says what the server wants it to; the client logs it."""
    import socket
    import threading

    caplog.set_level(logging.DEBUG)

    def serve():
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                body = b"x"
                head = f"HTTP/1.1 401 No {KEY}\r\nX-Key: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        server = type("Server", (), {"url": url})
        with pytest.raises(EndpointError, match=r"status 401 No \*\*\*") as error:
            asked(server, ["a"])
    assert not shows(str(error.value))
    assert any("401" in record.getMessage() for record in caplog.records if record.name == "httpx")
    assert not any(shows(record.getMessage()) for record in caplog.records)


def test_key_shows_in_no_object_that_holds_it():
    key = Secret(KEY)
    endpoint = judge_client.Endpoint("http://host/v1", key, 1, 1.0, 0)
    assert not shows(repr(key) + str(key) + f"{key!r:>9}" + repr(endpoint) + repr([key]))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(key)


@pytest.mark.parametrize("short", ["x", "EMPTY", "token-abc123", "1"])
def test_short_key_of_a_local_server_does_not_hide_scores(short, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", short)
    with serving(verdicts) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert asked(server, ["grade:1", "grade:0"]) == [1, 0]


# how much a reply may be


@pytest.mark.slow
def test_reply_that_inflates_without_bound_is_not_held(caplog):
    body = gzip.compress(b" " * (200 << 20), compresslevel=1)
    tracemalloc.start()
    try:
        with serving(lambda *_: Reply(body=body, headers={"Content-Encoding": "gzip"})) as server:
            assert asked(server, ["grade:1"], key="none", retries=0) == [None]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "replies are longer than 4 MiB" in warnings(caplog)[0]
    assert most < 64 << 20


@pytest.mark.parametrize("status", [200, 401, 500])
def test_long_reply_is_read_in_part(status, caplog):
    body = b"x" * (8 << 20)
    with serving(lambda *_: Reply(status, body)) as server:
        try:
            assert asked(server, ["grade:1"], key="none", retries=0) == [None]
        except EndpointError as error:
            assert status == 401 and len(str(error)) < 500
    assert status != 200 or "longer than 4 MiB" in warnings(caplog)[0]


def test_compressed_reply_is_read_and_asked_not_to_be(monkeypatch, caplog):
    plain = verdicts("grade:1", 0).body
    replies = {
        "gzip": gzip.compress(plain),
        "deflate": zlib.compress(plain),
        "identity": plain,
        "br": plain,
        "zstd": plain,
    }
    with serving(lambda text, _: Reply(body=replies[text], headers={"Content-Encoding": text})) as server:
        assert asked(server, list(replies), key="none", retries=0) == [1, 1, 1, None, None]
    assert "compressed" in warnings(caplog)[0]


@pytest.mark.parametrize(
    "text",
    [
        "score should be " + "\n" * LONGEST,
        "score is" + " =" * LONGEST,
        "score" + " " * LONGEST + "x",
        "score of " * (LONGEST // 9) + "\t" * 1000,
        "score:" + "\\boxed" + " " * LONGEST,
        "score" + "*" * LONGEST,
        ("score is" + " " * 300) * (LONGEST // 308),
        '{"a":' * 900 + "[" + "1," * (LONGEST // 3),
        '{"a":' * 900 + '"' + "x" * LONGEST,
        '{"a":' * 900 + "1" + "}" * 900 + " " * 10 + '{"b":[' + "1," * (LONGEST // 3) + "1]}",
        '{"a":' * (LONGEST // 5),
        '{"' * LONGEST,
        "{" + " " * LONGEST,
        ("{" + " " * 300) * (LONGEST // 301),
        "<think>" * LONGEST,
    ],
    ids=lambda text: text[:20],
)
def test_any_text_of_a_judge_is_read_in_linear_time(text):
    start = time.process_time()
    find_score(text, (0, 1))
    assert time.process_time() - start < 5  # milliseconds; minutes, where it grows with the square


def test_readings_that_add_up_give_no_score_rather_than_an_earlier_one():
    tangled = '{"a":' * 900 + "[" + "1," * (LONGEST // 3)
    assert find_score('{"score": 1} ' + tangled, (0, 1)) is None
    assert find_score('{"a": {"b": {"score": 1}}}', (0, 1)) == 1
    assert find_score(Path(__file__).read_text() + '\n{"score": 1}', (0, 1)) == 1
