"""A run whose log grows: its steps, each once, as soon as they are complete."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rewardspec.logs.files import is_log
from rewardspec.logs.format import CSV, LINES, START, Batches, Mark, Rollout
from rewardspec.logs.open import Opened
from rewardspec.logs.outputs import WRITING
from rewardspec.logs.records import further, is_known, kind_of
from rewardspec.logs.rows import BadLog
from rewardspec.logs.run import Run, Step
from rewardspec.logs.steps import merged, steps_of

MOST_NAMED = 8  # steps, in a note
# what a file can be while it is written, or removed by a run that keeps its last steps; one that stands still is wrong
UNFINISHED = BadLog, FileNotFoundError

Stamp = tuple[int, int]  # how large a file is, and when it changed
Opener = Callable[[Sequence[Path], Mapping[Path, Mark]], Opened]


@dataclass(frozen=True)
class Tail:
    """The last rows of a file that were read: their step, the number of the first, and how many there were."""

    step: int
    row: int
    count: int


@dataclass
class Growing:
    """The steps of a log that is being written, in order, each once: those of the finished log, if it only grows.

    A step is complete when a later one is there, or when its files did not change between two looks. Of JSON lines
    what follows the last step is read; another file is read again when it changes.

    paths: files, or folders. opened: function to what files hold. every: seconds between two looks. idle: seconds
    without a change after which the log is taken to be finished; by default never. looked: called after each look.
    late: steps of which rows came, or were written again, after they had been given.
    """

    paths: Sequence[Path]
    opened: Opener
    every: float = 5.0
    idle: float | None = None
    wait: Callable[[float], None] = time.sleep
    looked: Callable[[], None] = lambda: None
    late: set[int] = field(default_factory=set)
    _new: dict[Path, Stamp] = field(default_factory=dict)  # files of this look that changed
    _before: dict[Path, Stamp] | None = None  # all files of the look before
    _settled: bool = False
    _still: float = 0.0
    _cut: Exception | None = None  # of lines of which the last is not complete: a writer with a buffer may be at it
    _done: dict[Path, Stamp] = field(default_factory=dict)  # files of which all was given
    _tails: dict[Path, Tail] = field(default_factory=dict)
    _marks: dict[Path, Mark] = field(default_factory=dict)  # where they begin, of lines
    _half: list[Rollout] | None = None  # a step of CSV whose last line is not complete
    _last: tuple[int, set[Path]] | None = None  # the step that was given last, and its files

    def __iter__(self) -> Iterator[tuple[Run, Step]]:
        """The steps, each with the run as it was opened at first. Raises BadLog, OSError."""
        while (first := self._open()) is None:
            if self._is_over():
                return
        run = first.run()
        for step in steps_of(self._batches(first), first.form, first.columns):
            yield run, step

    def notes(self) -> Iterator[str]:
        """What of the log was not given, in words."""
        if self.late:
            named, more = ", ".join(map(str, sorted(self.late)[:MOST_NAMED])), len(self.late) - MOST_NAMED
            also = f" and {more:,} more" if more > 0 else ""
            yield (
                f"rows of steps that had been shown came later, or were written again, and are not counted: {named}"
                f"{also}; `rewardspec replay` counts them"
            )

    def _open(self) -> Opened | None:
        """Look, and open what changed; None if nothing did, or if it cannot be read yet. Raises BadLog, OSError."""
        now = _files(self.paths)
        self._settled, self._before = now == self._before, now
        if not self._settled:
            self._cut = self._half = None
        self._new = {path: stamp for path, stamp in now.items() if self._done.get(path) != stamp}
        if not self._new or (self._settled and self._still):
            return None
        try:
            for path in self._new.keys() & self._marks.keys():
                if not is_known(path, self._marks[path]):  # it was cut, or is another file now
                    del self._marks[path]
            return self.opened(sorted(self._new), self._marks)
        except UNFINISHED as error:
            self._refuse(error)
        return None

    def _refuse(self, error: Exception) -> None:
        """Raise what is wrong with a log that stands still; if that ends within a line, only when it is finished."""
        if self._settled:
            if not any(map(_is_cut, self._new)):
                raise error
            self._cut = error

    def _is_over(self) -> bool:
        """End a look: wait for the next, or say that there is none."""
        self.looked()
        self._still = self._still + self.every if self._settled else 0.0
        if self.idle is not None and self._still >= self.idle:
            if self._cut is not None:
                raise self._cut
            return True
        self.wait(self.every)
        return False

    def _batches(self, opened: Opened | None) -> Batches:
        """The batches of all looks. opened: what the first of them opened."""
        while True:
            if opened is not None:
                try:
                    yield from self._complete(opened)
                except UNFINISHED as error:
                    self._refuse(error)
            if self._is_over():
                if self._half is not None:
                    yield self._given(self._half)
                return
            opened = self._open()

    def _complete(self, opened: Opened) -> Batches:
        """The new batches of a look that are complete."""
        held: list[Rollout] | None = None
        kinds = {head.path: head.kind for head in opened.heads}
        try:
            for batch in merged(opened.heads, opened.form, opened.taken):
                if self._is_new(batch, kinds, opened.form.alone):
                    if held is not None:
                        yield self._given(held)
                    held = batch
        finally:
            for path, kind in kinds.items():
                if kind == LINES and path in self._tails:
                    with suppress(FileNotFoundError):
                        self._marks[path] = further(path, self._marks.get(path, START), self._tails[path].row)
        if held is not None and self._settled:
            if any(kinds[path] == CSV and _is_cut(path) for path in {rollout.place[0] for rollout in held}):
                self._half = held  # `12` may become `1234`
            else:
                yield self._given(held)
                held = None
        kept = {rollout.place[0] for rollout in held or ()}
        self._done |= {path: stamp for path, stamp in self._new.items() if path not in kept}

    def _given(self, batch: list[Rollout]) -> list[Rollout]:
        files, number = {rollout.place[0] for rollout in batch}, batch[0].step
        assert number is not None, "others are refused"
        again = self._last is not None and self._last[0] == number
        self._last = number, files | (self._last[1] if again and self._last is not None else set())
        return batch

    def _is_new(self, batch: list[Rollout], kinds: Mapping[Path, str], alone: bool) -> bool:
        """Whether a batch comes after those that were given; if not, note what changed in it.

        alone: whether a step has several batches, each in a file.
        """
        number, parts = batch[0].step, dict[Path, Tail]()
        if number is None:
            raise BadLog("the log has no steps, so what is new in it cannot be told: use `rewardspec replay`")
        for rollout in batch:
            path, row = rollout.place
            before = parts.get(path)
            parts[path] = Tail(number, row if before is None else before.row, 1 if before is None else before.count + 1)
        last = self._last
        new = last is None or number > last[0] or (alone and number == last[0] and last[1].isdisjoint(parts))
        for path, part in parts.items():
            known = self._tails.get(path)
            if not new and self._changed(path, part, known, kinds[path]):
                self.late.add(number)
            if known is None or number >= known.step:
                self._tails[path] = part
        return new

    def _changed(self, path: Path, part: Tail, known: Tail | None, kind: str) -> bool:
        """Whether rows of a step that was given are not those that it had then."""
        if known is None or part.step > known.step or (part.step == known.step and part.count != known.count):
            return True
        if kind == LINES:  # which are read from their last step on
            return part.step < known.step
        return kind != CSV and path in self._done


def _is_cut(path: Path) -> bool:
    """Whether a file of lines ends within one."""
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n" and kind_of(path) in (LINES, CSV)
    except (BadLog, OSError):
        return False


def _files(paths: Sequence[Path]) -> dict[Path, Stamp]:
    """Every file, how large it is, and when it changed."""
    found = {}
    for path in paths:
        inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names if is_log(name)]
        for file in inside if path.is_dir() else [path]:
            try:
                stat = file.stat()
            except OSError:
                continue
            if not file.name.endswith(WRITING):
                found[file] = stat.st_size, stat.st_mtime_ns
    return found
