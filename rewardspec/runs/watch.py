"""A run whose log grows: its steps, each once, as soon as they are complete."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rewardspec.logs.files import is_log
from rewardspec.logs.outputs import WRITING
from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Run, Step

Opener = Callable[[Sequence[Path]], Run]
Stamp = tuple[Path, int, int]


def growing(
    paths: Sequence[Path],
    opened: Opener,
    *,
    every: float = 5.0,
    idle: float | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Run, Step]]:
    """The steps of a log that is being written, in order, each with the run as it was opened.

    A step is complete when a later one is there, or when its files did not change between two looks. every: seconds
    between two looks. idle: seconds without a change after which the log is taken to be finished; by default never.
    Raises BadLog, OSError.
    """
    last: int | None = None
    given: set[Path] = set()  # files of the last step
    done: set[Stamp] = set()  # files whose steps were all given
    before: frozenset[Stamp] | None = None
    still = 0.0
    while True:
        now = _files(paths)
        settled = now == before
        left = sorted(now - done)
        if left and (not settled or not still):
            try:
                run = opened([path for path, *_ in left])
                steps, held = _after(run, last, given, settled)
            except BadLog:
                if settled:  # a file that is being written can be cut off, one that stands still is wrong
                    raise
                steps, held = [], None
            for step in steps:
                yield run, step
                given = {path for path, _ in step.places} | (given if step.number == last else set())
                last = step.number
            kept = set() if held is None else {path for path, _ in held.places}
            read = {path for step in steps for path, _ in step.places} - kept
            done |= {stamp for stamp in left if stamp[0] in read}
        still = still + every if settled else 0.0
        if idle is not None and still >= idle:
            return
        before = now
        wait(every)


def _after(run: Run, last: int | None, given: set[Path], settled: bool) -> tuple[list[Step], Step | None]:
    """The steps after `last`; the newest apart, unless the files have settled.

    given: the files of the last step. A step can have several batches, each in a file.
    """
    found: list[Step] = []
    for step in run.steps():
        if step.number is None:
            raise BadLog("the log has no steps, so what is new in it cannot be told: use `rewardspec replay`")
        again = step.number == last and given.isdisjoint(path for path, _ in step.places)
        if last is None or step.number > last or again:
            found.append(step)
    return (found, None) if settled or not found else (found[:-1], found[-1])


def _files(paths: Sequence[Path]) -> frozenset[Stamp]:
    """Every file, how large it is, and when it changed."""
    found = []
    for path in paths:
        inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names if is_log(name)]
        for file in inside if path.is_dir() else [path]:
            try:
                stat = file.stat()
            except OSError:
                continue
            if not file.name.endswith(WRITING):
                found.append((file, stat.st_size, stat.st_mtime_ns))
    return frozenset(found)
