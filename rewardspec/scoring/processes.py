"""Parts of a file worked on in several processes: what only computes takes a core each.

Each process is a Python of its own that reads tasks from a pipe. Unlike those of `multiprocessing`, they neither run
the caller's program again nor inherit its threads.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rewardspec.logs.parts import Part
from rewardspec.rewards.reward import ScoringError
from rewardspec.scoring.component_cache import ComponentCache
from rewardspec.scoring.measure import Measured, Names, Outcome, measured
from rewardspec.scoring.permission import Allowed
from rewardspec.scoring.scorer import Scorer
from rewardspec.spec import Spec

if TYPE_CHECKING:
    from rewardspec.scoring.accounts import AccountFile

FEWEST_ROWS = 20_000  # of a file that is worth the start of processes
PIPE = 1 << 20  # bytes
AHEAD = 2  # parts for each process that wait for it, or for the part before them

T = TypeVar("T", contravariant=True)
R = TypeVar("R", covariant=True)

# a part, what an earlier run measured of it, and whether it becomes Parquet
Task = tuple[Part, Mapping[int, tuple[str, Outcome]], bool]


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def best_processes(scorer: Scorer, rows: int) -> int:
    """How many processes measure a file fastest; 1 is this one alone.

    The user's own functions may keep state or hold a model, so they run in this process unless the caller says
    otherwise. Functions that take many rollouts at once have processes or connections of their own.
    """
    light = all(
        use.reward is not None and not use.reward.many and n not in scorer.own for n, use in scorer.uses.items()
    )
    return best_for(rows) if light and scorer.uses else 1


def best_for(rows: int) -> int:
    """How many processes compute for the rows of a file fastest."""
    return cores() if rows >= FEWEST_ROWS else 1


def measured_in_order(
    scorer: Scorer,
    names: Names,
    tasks: Iterable[Task],
    processes: int,
    allowed: Allowed,
    account: AccountFile | None = None,
) -> Iterator[Measured]:
    """Each part measured, in their order, whichever process did it. Raises ScoringError, BadLog.

    account: of judges, for all processes.
    """
    if processes == 1 or scorer.spec.made is None:  # a variation of a spec has no text that could be sent
        for task in tasks:
            yield measured(scorer, names, *task)
        return
    yield from done_in_order(_Measuring(scorer.spec, allowed, names, scorer.cache, account), tasks, processes)


class Work(Protocol[T, R]):
    """What processes do with each task. It is pickled, and so are tasks and answers; a process keeps it."""

    def __call__(self, task: T, /) -> R: ...


def done_in_order(work: Work[T, R], tasks: Iterable[T], processes: int) -> Iterator[R]:
    """The answer to each task, in their order, whichever process did it. Raises what the work raises."""
    pool = _Pool(processes, work)
    try:
        yield from pool.in_order(tasks)
    finally:
        pool.stop()


@dataclass
class _Measuring:
    """The work of measuring parts."""

    spec: Spec
    allowed: Allowed
    names: Names
    cache: ComponentCache | None
    account: AccountFile | None

    def __call__(self, task: Task) -> Measured:
        return measured(self._scorer, self.names, *task)

    @cached_property
    def _scorer(self) -> Scorer:
        if self.account is not None:
            from rewardspec.rewards.judge.account import share

            share(self.account)
        return Scorer(self.spec, self.allowed, cache=self.cache)


class _Pool:
    def __init__(self, count: int, work: Work[Any, Any]):
        self.setting = pickle.dumps(work)
        self.idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self.all = [_Process(self.setting) for _ in range(count)]
        for process in self.all:
            self.idle.put(process)
        self.threads = ThreadPoolExecutor(count, "measuring")

    def in_order(self, tasks: Iterable[Any]) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        for task in tasks:
            waiting.append(self.threads.submit(self._ask, task))
            if len(waiting) > AHEAD * len(self.all):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def stop(self) -> None:
        for process in self.all:
            process.stop()
        self.threads.shutdown(cancel_futures=True)

    def _ask(self, task: object) -> Any:
        process = self.idle.get()
        try:
            return process.ask(task)
        finally:
            self.idle.put(process)


class _Process:
    def __init__(self, setting: bytes):
        self.setting, self.stopped = setting, False
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-c", "from rewardspec.scoring.processes import serve; serve()"]
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert process.stdin is not None and process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            _widen(pipe.fileno())
        process.stdin.write(self.setting)
        return process

    def ask(self, task: object) -> Any:
        """The answer to a task. A process that was killed is started again, once for each task."""
        for last in (False, True):
            try:
                answer = self._answer(task)
                break
            except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
                if self.stopped or last:
                    raise ScoringError(
                        "a process that worked on rows was ended, perhaps for lack of memory: run the same command to "
                        "resume, with fewer processes"
                    ) from error
                self._end()
                self.process = self._started()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, task: object) -> object:
        assert self.process.stdin is not None and self.process.stdout is not None
        pickle.dump(task, self.process.stdin, pickle.HIGHEST_PROTOCOL)
        self.process.stdin.flush()
        found: object = pickle.load(self.process.stdout)  # of a process that we started
        return found

    def stop(self) -> None:
        self.stopped = True
        self._end()

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what it did not read
                    pipe.close()


def _widen(pipe: int) -> None:
    """Let a pipe hold a whole part, where the system can: else both sides wait for each other every 64 KB."""
    import fcntl

    with suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)


def serve() -> None:
    """The main loop of a process: an answer to each task, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # functions may print: keep that out of the answers
    work = pickle.load(sys.stdin.buffer)
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            found: object = work(task)
        except Exception as error:
            found = _portable(error)
        pickle.dump(found, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _portable(error: Exception) -> Exception:
    """An error that can be sent: of the same class if that can be, else with its name."""
    with suppress(Exception):  # any class can refuse
        again = pickle.loads(pickle.dumps(error))
        if type(again) is type(error) and str(again) == str(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
