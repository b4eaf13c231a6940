"""Judges: how near `score` comes to as many answers as `concurrency` and the time of an answer allow.

    python tests/benchmarks/judge.py
    python tests/benchmarks/judge.py --delay 0.2 --concurrency 64 --calls 3200 --processes 2

A server of its own process answers every request after DELAY seconds. The rate is that between the first request and
the last answer; beside it is the processor time of a call in the process that asks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rewardspec

ANSWER = {
    "choices": [{"message": {"content": "Score: 1"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 500, "completion_tokens": 5},
}
SPEC = """rewardspec: 1
components:
  right: {{use: qa.exact_match, with: {{tag: none, answer: gold}}}}
  clear:
    use: judge.rubric
    with: {{template: "{{completion}}", scores: [0, 1], model: m, url: "http://127.0.0.1:{port}/v1", cache: none,
           concurrency: {concurrency}, only_when: right >= 1}}
    missing: ignore
advantage: grpo
"""


async def serve(delay: float) -> None:
    """Answer requests; on standard output the port, and at the end of the input the first and the last time."""
    body = json.dumps(ANSWER).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    times: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                times.append(time.monotonic())
                await asyncio.sleep(delay)
                writer.write(reply)
                await writer.drain()
                times.append(time.monotonic())
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(max(times) - min(times), len(times) // 2, flush=True)


def rate(calls: int, every: int, delay: float, concurrency: int, processes: int) -> str:
    """A line about one run. every: one row in so many is asked about."""
    command = [sys.executable, __file__, "--serve", "--delay", str(delay)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    try:
        port = int(server.stdout.readline())
        with tempfile.TemporaryDirectory() as folder:
            spec, rows, out = (Path(folder, name) for name in ("spec.yaml", "rows.jsonl", "out.jsonl"))
            spec.write_text(SPEC.format(port=port, concurrency=concurrency))
            with open(rows, "w") as file:
                for i in range(calls * every):
                    text = f"{i} " + "word " * 400
                    row = {"group": i // 8, "prompt": "p", "completion": text, "gold": "no" if i % every else text}
                    file.write(json.dumps(row) + "\n")
            began = time.process_time()
            rewardspec.score(spec, rows, out, processes=processes)
            used = time.process_time() - began
        server.stdin.close()
        seconds, asked = server.stdout.read().split()
    finally:
        server.kill()
        server.wait()
    found, most = int(asked) / float(seconds), concurrency * processes / delay
    alone = f", {1000 * used / calls:.2f} ms of processor a call" if processes == 1 else ""
    return f"1 row of {every}: {asked} calls, {found:.0f} a second of {most:.0f} ({found / most:.0%}){alone}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay", type=float, default=0.2)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--calls", type=int, default=2048)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.delay))
    else:
        loaded = rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, 1]}}\nadvantage: grpo\n")
        rewardspec.compile(loaded)  # torch is loaded
        for every in (1, 8):
            print(rate(given.calls // every, every, given.delay, given.concurrency, given.processes), flush=True)
