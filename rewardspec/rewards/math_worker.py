"""math-verify in separate processes, so that no expression can stall a trainer.

math-verify limits its time by alarms, which work only in the main thread of a process; some expressions outlast them.
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
    """One process that compares pairs of texts. It is started on first use, and again after it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, gold: str, text: str, timeout: float) -> bool | str | None:
        """Whether the two are equal; UNREADABLE if `gold` is; None if it took too long."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps([gold, text, timeout]).encode() + b"\n")
        self.process.stdin.flush()
        line = self._line(timeout + 1)  # the process's own alarm usually comes first
        if line is None:
            self.stop()
            return None
        answer: bool | str = json.loads(line)
        return answer

    def _start(self) -> None:
        command = [sys.executable, "-P", "-c", "from rewardspec.rewards.math_worker import serve; serve()"]
        path = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )
        line = self._line(STARTING)
        if line is None or json.loads(line) != "ready":
            self.stop()
            raise ModuleNotFoundError("`math.correct` needs math-verify: pip install 'rewardspec[rewards]'")

    def _line(self, seconds: float) -> bytes | None:
        """The next line; None if none comes in time or the process has ended."""
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
    """For each (gold, text) whether the two are equal; UNREADABLE if gold is; None if it took over `timeout` seconds.

    Several pairs are compared at once.
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
    except (BrokenPipeError, json.JSONDecodeError):  # it ended meanwhile, for example out of memory
        worker.stop()
        return None
    finally:
        _idle.put(worker)


def _last_at_most(seconds: int) -> None:
    """Let the system end this process after so many more seconds of work: its parent may be gone."""
    try:
        import resource
    except ModuleNotFoundError:  # not a POSIX system
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def serve() -> None:
    """The main loop of the process: a line of JSON for each line of JSON, until input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print: keep that out of the answers
    logging.disable(logging.CRITICAL)  # it logs a line for every time-out
    from math_verify import parse, verify  # if it is missing, the process ends, and the parent reports that

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
        except Exception:  # an expression that fails in any way is not equal
            say(False)
