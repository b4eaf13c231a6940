"""`code.pass_rate` and `code.no_error`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from rewardspec.rewards.code.sandbox import Limits
from rewardspec.rewards.code.verdicts import verdicts
from rewardspec.rewards.reward import Within, between, reward

Seconds = Annotated[float, Within(gt=0, le=3600)]
Mebibytes = Annotated[int, Within(ge=64, le=1 << 20)]
Workers = Annotated[int, Within(ge=1, le=1024)]


@reward("code.pass_rate", domain=lambda **_: between(0, 1), inputs=("completion", "tests"), many=True)
def pass_rate(
    completions: Sequence[str],
    tests: Sequence[object],
    *,
    timeout: Seconds = 5.0,
    total: Seconds = 60.0,
    memory: Mebibytes = 1024,
    workers: Workers | None = None,
) -> list[float | None]:
    """The fraction of its tests that the program in each completion passes.

    tests: inputs and outputs, calls, or texts with `assert`, for each completion; `cases.py` has the formats.
    timeout: wall-clock seconds for one test; total: for all tests of a program; tests not reached by then fail.
    memory: MiB for each process. workers: programs that run at once, by default one for each processor.
    None if programs cannot be run here, or a test needs something that is not installed. Raises BadReference.
    Source: GDPO, arXiv:2601.05242, Sec. 4.3, pass rate reward.
    """
    found = verdicts(completions, tests, Limits(timeout, total, memory), workers)
    return [None if verdict is None else verdict.passed / verdict.tests for verdict in found]


@reward("code.no_error", domain=(0, 1), inputs=("completion", "tests"), many=True)
def no_error(
    completions: Sequence[str],
    tests: Sequence[object],
    *,
    timeout: Seconds = 5.0,
    total: Seconds = 60.0,
    memory: Mebibytes = 1024,
    workers: Workers | None = None,
) -> list[float | None]:
    """1 if the program in a completion runs on all its tests without an error, right or wrong, else 0.

    Errors are: no program, a syntax error, an exception, a non-zero exit status, too little time or memory, and too
    much output. The options are those of `code.pass_rate`; with equal options both share one run of each program.
    Source: GDPO, arXiv:2601.05242, Sec. 4.3, bug reward.
    """
    found = verdicts(completions, tests, Limits(timeout, total, memory), workers)
    return [None if verdict is None else float(verdict.clean) for verdict in found]
