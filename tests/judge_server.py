"""A server that speaks the protocol of OpenAI's chat completions, and what the tests of a judge share."""

import json
import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rewardspec.rewards.judge import client as judge_client
from rewardspec.rewards.judge import rubric

TIERS = (0, 0.5, 1)
OWN = {"template": "{completion}", "scores": TIERS, "model": "m", "cache": "none"}


@dataclass(frozen=True)
class Reply:
    """What the server sends; after `delay` seconds, and nothing at all but a closed connection for `hang_up`."""

    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    delay: float = 0.0
    hang_up: bool = False


def said(text, finish="stop", **more):
    """A completion with this text."""
    message = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return Reply(body=json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode())


def failed(status, message="no", code=None, **headers):
    """An error as OpenAI writes it; headers with `_` for `-`."""
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass
class Server:
    """What was asked, in order, and the most requests that were under way at once."""

    url: str
    asked: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    times: list = field(default_factory=list)
    most: int = 0
    now: int = 0

    @property
    def texts(self):
        return [body["messages"][0]["content"] for body in self.asked]


@contextmanager
def serving(answer):
    """A running server. answer: from the text of the message and how often it was asked before to a Reply."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = body["messages"][0]["content"]
            with lock:
                before = server.texts.count(text)
                server.asked.append(body)
                server.keys.append(self.headers.get("Authorization"))
                server.times.append(time.monotonic())
                server.now += 1
                server.most = max(server.most, server.now)
            try:
                reply = failed(404, "no such path") if self.path != "/v1/chat/completions" else answer(text, before)
                time.sleep(reply.delay)
            finally:
                with lock:
                    server.now -= 1
            self.close_connection = reply.hang_up
            if not reply.hang_up:
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, *_):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_):  # a client that gave up
            pass

    http = Quiet(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """No endpoint, key, proxy or cache but the test's own, and pauses that are short."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith("OPENAI_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(judge_client, "FIRST_PAUSE", 0.01)


def verdicts(text, _before):
    """A judge that gives the number in `grade:NUMBER`, at the end of some reasoning about other numbers."""
    return said(f"Step 1 has 2 errors, 3 of them minor.\n\nScore: {text.rpartition('grade:')[2]}")


def asked(server, completions, **options):
    """The scores of completions under a rubric that is the completion and nothing else."""
    return rubric(["p"] * len(completions), completions, **{**OWN, "url": server.url, **options})


def warnings(caplog):
    """The lines that were logged as warnings."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
