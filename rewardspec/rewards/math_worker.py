"""math-verify in processes of its own, so that no expression can take a trainer's time.

It limits itself by alarms, which work in the main thread of a process alone, and some expressions outlast them.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

STARTING = 60.0  # seconds that a process may take to import math-verify
UNREADABLE = "unreadable"


class Worker:
    """One process that compares pairs of texts. It is started when it is first asked, and anew once it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, gold: str, text: str, timeout: float) -> bool | str | None:
        """Whether the two are equal, UNREADABLE for a gold that is; None where it took too long."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps([gold, text, timeout]).encode() + b"\n")
        self.process.stdin.flush()
        line = self._line(timeout + 1)  # its own alarm comes first, where it can
        if line is None:
            self.stop()
            return None
        answer: bool | str = json.loads(line)
        return answer

    def _start(self) -> None:
        command = [sys.executable, "-c", "from rewardspec.rewards.math_worker import serve; serve()"]
        path = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )
        line = self._line(STARTING)
        if line is None or json.loads(line) != "ready":
            self.stop()
            raise ModuleNotFoundError("`math.correct` needs math-verify: pip install 'rewardspec[rewards]'")

    def _line(self, seconds: float) -> bytes | None:
        """The next line, None where none comes in time or the process has ended."""
        assert self.process is not None and self.process.stdout is not None
        alarm = threading.Timer(seconds, self.process.kill)
        alarm.start()
        try:
            return self.process.stdout.readline() or None
        finally:
            alarm.cancel()

    def stop(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


_idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
_workers: list[Worker] = []


@atexit.register
def stop_all() -> None:
    """End every process."""
    for worker in _workers:
        worker.stop()


def verify_all(pairs: Sequence[tuple[str, str]], timeout: float) -> list[bool | str | None]:
    """Whether the two texts of each (gold, text) are equal: several at a time.

    UNREADABLE for a gold that is; None where it took more than `timeout` seconds.
    """
    if not pairs:
        return []
    with ThreadPoolExecutor(min(len(pairs), os.cpu_count() or 1)) as threads:
        return list(threads.map(lambda pair: _verify(pair[0], pair[1], timeout), pairs))


def _verify(gold: str, text: str, timeout: float) -> bool | str | None:
    try:
        worker = _idle.get_nowait()
    except queue.Empty:
        worker = Worker()
        _workers.append(worker)
    try:
        return worker.ask(gold, text, timeout)
    except (BrokenPipeError, json.JSONDecodeError):  # it ended under the question: out of memory, say
        worker.stop()
        return None
    finally:
        _idle.put(worker)


def _last_at_most(seconds: int) -> None:
    """Let the system end this process after so much more work: whoever asked may be gone, and cannot."""
    try:
        import resource
    except ModuleNotFoundError:  # no POSIX system
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def serve() -> None:
    """The process: a line of JSON for each line of JSON, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    logging.disable(logging.CRITICAL)  # a line for every time-out
    from math_verify import parse, verify  # its absence ends the process, which says enough

    def say(answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    say("ready")
    for line in sys.stdin:
        gold, text, timeout = json.loads(line)
        seconds = max(1, int(timeout))
        _last_at_most(seconds + 2)
        try:
            # outside `$` a pair such as (2, 3) would be read as its last number
            latex = gold if "$" in gold or "\\boxed" in gold else f"${gold}$"
            wanted = parse(latex, parsing_timeout=seconds) or parse(gold, parsing_timeout=seconds)
            found = parse(text, parsing_timeout=seconds)
            say(bool(verify(wanted, found, timeout_seconds=seconds)) if wanted else UNREADABLE)
        except Exception:  # whatever an expression sets off in there, it is not equal
            say(False)
