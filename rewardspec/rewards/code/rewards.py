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
    """The share of its tests that the program in each completion passes.

    tests: inputs and outputs, calls, or texts with `assert`, for each completion; `cases.py` says in which forms.
    timeout: seconds by the clock for one test; total: for all tests of a program, those not reached by then failed.
    memory: MiB for each process. workers: programs at once, for None as many as there are processors.
    None for a program that cannot be run here, or a test that needs what is not here. Raises BadReference.
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
    """1 where the program in each completion runs on all its tests without an error, right or wrong, else 0.

    No program at all, a syntax error, an exception, an exit status, a lack of time or memory, and too long an output
    are errors. The options are those of `code.pass_rate`, and with the same ones no program is run again for it.
    Source: GDPO, arXiv:2601.05242, Sec. 4.3, bug reward.
    """
    found = verdicts(completions, tests, Limits(timeout, total, memory), workers)
    return [None if verdict is None else float(verdict.clean) for verdict in found]
