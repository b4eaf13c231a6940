"""The verdicts on programs, from running their tests. Equal programs with equal tests are run once."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rewardspec.rewards.code.cases import Tests, read_tests
from rewardspec.rewards.code.output import same_output
from rewardspec.rewards.code.program import program_of
from rewardspec.rewards.code.sandbox import Limits, Result, SandboxError, protections, run_with_inputs, run_with_tests
from rewardspec.rewards.reward import each
from rewardspec.text.diagnostics import shorten

KEPT = 16384  # verdicts that are cached, so that the rewards of one batch share them
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """How many of its tests a program passed. clean: whether all tests ran without an error."""

    passed: int
    tests: int
    clean: bool


def verdicts(
    completions: Sequence[str], tests: Sequence[object], limits: Limits, workers: int | None
) -> list[Verdict | None]:
    """The verdict on each program; None if it cannot be run or tested here. Raises BadReference.

    Equal programs with equal tests are run once, and the last verdicts are cached.
    """
    known: dict[object, Tests] = {}

    def read(given: object) -> Tests:
        key = given if isinstance(given, str) else id(given)
        if key not in known:
            known[key] = read_tests(given)
        return known[key]

    parsed = each(read, list(tests))  # the list keeps its objects alive, so each id means one object
    try:
        protections()
    except SandboxError as error:
        _log.warning("programs cannot be run: %s", error)
        return [None] * len(parsed)
    threads = ThreadPoolExecutor(workers or _processors())
    try:
        programs = map(program_of, completions)
        asked = [_verdict(threads, *each, limits) for each in zip(programs, parsed, strict=True)]
        return [future.result() for future in asked]
    finally:
        threads.shutdown(cancel_futures=True)  # an interrupt waits only for programs that are running


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_kept: OrderedDict[tuple[Any, ...], Future[Verdict | None]] = OrderedDict()
_keeping = threading.Lock()


def _verdict(threads: ThreadPoolExecutor, program: str, tests: Tests, limits: Limits) -> Future[Verdict | None]:
    key = (hashlib.sha256(program.encode("utf-8", "surrogatepass")).digest(), tests.digest, limits)
    with _keeping:
        known = _kept.get(key)
        if known is not None and not (known.done() and (known.cancelled() or known.result() is None)):
            _kept.move_to_end(key)
            return known
        _kept[key] = future = threads.submit(_run, program, tests, limits)
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    return future


def _run(program: str, tests: Tests, limits: Limits) -> Verdict | None:
    count = len(tests.in_python or tests.inputs)
    if not program.strip():
        return Verdict(0, count, False)
    try:
        if tests.in_python:
            results = run_with_tests(program, tests.setup, tests.in_python, limits)
            passed = [result.passed for result in results]
        else:
            results = run_with_inputs(program, tests.inputs, limits)
            passed = [_right(result, output) for result, output in zip(results, tests.outputs, strict=True)]
    except (SandboxError, OSError) as error:
        _log.warning("a program could not be run: %s", error)
        return None
    if any(result.end == "unusable" for result in results):
        _log.warning("a test needs something that is not installed: %s", shorten(str(tests.in_python[0]), 200))
        return None
    return Verdict(sum(passed), count, all(result.end == "ok" for result in results))


def _right(result: Result, output: str) -> bool:
    return result.end == "ok" and same_output(result.written, output)
