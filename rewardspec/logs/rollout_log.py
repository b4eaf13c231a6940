"""The rollouts of a training run in files: a Parquet file for each step, written beside the training.

    rollouts/step_00000300.parquet

docs/rollout_log.md says what is in one. A file is there completely or not at all.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from rewardspec.logs.outputs import WRITING, replace
from rewardspec.logs.rollout_table import FULL, TEXTS, Column, row_group, table_of
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import printed, shown

logger = logging.getLogger(__name__)

SCHEMA = 1  # of the files: a number more where a reader would read one wrongly
KEY = b"rewardspec"  # of the metadata of a file
OWN = "rewardspec/"  # how the names of the log's own columns begin
AS_TEXT = ("prompt", "completion", "prompt_hash", "completion_hash")  # columns that `text` decides about
NAME = re.compile(r"step_(\d{8,})(?:_(\d+))?\.parquet")


@dataclass(frozen=True)
class RolloutLog:
    """Where a trainer writes its rollouts, and how many of them.

    RolloutLog("rollouts", every=10, keep=100, text="hash")

    folder: created if needed. every: of so many steps the first is written. keep: the number of steps whose files are
    kept, the last ones; None for all. text: prompts and completions in `full`, by `hash`, or `none` of them.
    columns: names of the data set's columns, such as `source`, whose values are written beside each rollout.
    Raises ValueError with all that is wrong.
    """

    folder: str | os.PathLike[str]
    every: int = 1
    keep: int | None = None
    text: str = FULL
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.folder, str | os.PathLike) or not os.fspath(self.folder).strip():
            problems.append(f"the folder of the rollout log is {shorten(repr(self.folder))}: it must be a path")
        for name, value in (("every", self.every), ("keep", self.keep)):
            right = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if not right and not (name == "keep" and value is None):
                what = shorten(repr(value))
                problems.append(f"`{name}` of the rollout log is {what}: it must be a whole number, 1 or more")
        if self.text not in TEXTS:
            what = shorten(repr(self.text))
            problems.append(f"`text` of the rollout log is {what}: it must be one of {', '.join(TEXTS)}")
        problems += self._wrong_columns()
        if problems:
            raise ValueError("\n".join(problems))
        object.__setattr__(self, "columns", tuple(dict.fromkeys(self.columns)))

    def _wrong_columns(self) -> list[str]:
        """Messages about `columns`."""
        given: Any = self.columns
        listed = isinstance(given, list | tuple)  # `RolloutLog` is called by users, with anything
        if not listed or not all(isinstance(name, str) and name.strip() for name in given):
            return [f"`columns` of the rollout log is {shorten(repr(given))}: it must be a list of names"]
        return [
            f"`columns` of the rollout log has `{shorten(name)}`: "
            + ("`text` decides about it" if name in AS_TEXT else f"`{OWN}` is for the log's own columns")
            for name in given
            if name in AS_TEXT or name.startswith(OWN)
        ]


class LogWriter:
    """Writes the batches of one run, one process alone.

    about: what is said of every file, plain JSON. A batch is written by a thread while training goes on; the next one
    waits until it is done, so there is never more than one. What fails there (a full disk) is a warning when the next
    batch comes, and training goes on without these files. The interpreter waits for the thread when it ends.
    Raises ImportError without pyarrow, OSError for a folder that cannot be written into.
    """

    def __init__(self, log: RolloutLog, about: Mapping[str, object]):
        try:
            import pyarrow.parquet  # noqa: F401
        except ModuleNotFoundError:
            raise ImportError("a rollout log needs pyarrow: pip install 'rewardspec[logs]'") from None
        self.log, self.folder = log, Path(os.path.abspath(log.folder))
        self.about = {**about, "schema": SCHEMA, "every": log.every, "text": log.text, "kept": [*log.columns]}
        self.failed = 0  # batches that could not be written, since the last one that could
        self._thread: Thread | None = None
        self._problem: Exception | None = None
        self.begin()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"writable{WRITING}").touch()
        for path in self.folder.glob(f"*{WRITING}"):  # and those of a run that was killed
            path.unlink(missing_ok=True)

    def begin(self) -> None:
        """Begin a run: training starts, or starts again."""
        self.flush()
        self._run: dict[str, object] = {"run": uuid.uuid4().hex, "started": time.time()}
        self._step: int | None = None  # the last one that was written
        self._batch = 0

    def wants(self, step: int) -> bool:
        """Whether the batches of a step are written: the first step of every `every`."""
        if self._step is None:
            with suppress(OSError):
                before = (found for found, _ in files_of(self.folder) if found < step)
                self._step = max(before, default=None)  # of the run that is resumed
        return self._step is None or step <= self._step or step // self.log.every != self._step // self.log.every

    def write(self, step: int, columns: Mapping[str, Column], about: Mapping[str, object]) -> None:
        """Begin to write a batch. columns: not changed until it is done. about: of this batch, plain JSON."""
        self.flush()
        again = step == self._step and "first_step" in self._run
        self._step, self._batch = step, self._batch + 1 if again else 0
        self._run.setdefault("first_step", step)
        told = {**self.about, **self._run, **about, "step": step, "batch": self._batch}
        self._thread = Thread(target=self._write, args=(step, self._batch, columns, told))
        self._thread.start()

    def flush(self) -> None:
        """Wait until everything is written; warn if that failed."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread, problem, self._problem = None, self._problem, None
        if problem is not None:
            self.skip(self._step, problem)
        elif self.failed:
            logger.warning("rewardspec: the rollout log is written again, after %d batches without it", self.failed)
            self.failed = 0

    def skip(self, step: int | None, problem: Exception) -> None:
        """Warn of a batch that is not in the log, and go on."""
        self.failed += 1
        said = printed(f"{type(problem).__name__}: {shorten(str(problem), 300)}")
        where = shown(self.folder)
        logger.warning("rewardspec: step %s is not in the rollout log %s; training goes on: %s", step, where, said)

    def _write(self, step: int, batch: int, columns: Mapping[str, Column], about: Mapping[str, object]) -> None:
        path = path_of(self.folder, step, batch)
        try:
            write_batch(path, columns, about)
            self._prune(step)
        except Exception as problem:
            with suppress(OSError):  # what is there of it would keep the disk full
                path.with_name(path.name + WRITING).unlink(missing_ok=True)
            self._problem = problem

    def _prune(self, step: int) -> None:
        """Remove the oldest steps: first those after `step`, which a run left that was resumed before them."""
        if self.log.keep is None:
            return
        found = files_of(self.folder)
        steps = sorted({number for number, _ in found}, key=lambda number: (number <= step, number))
        gone = {*steps[: -self.log.keep]}
        for number, path in found:
            if number in gone:
                path.unlink(missing_ok=True)


def path_of(folder: Path, step: int, batch: int = 0) -> Path:
    """The file of a batch: `step_00000300.parquet`, and `step_00000300_1.parquet` for the second of a step."""
    return folder / f"step_{step:08d}{f'_{batch}' if batch else ''}.parquet"


def files_of(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of the complete files in a folder, in the order of their steps and batches."""
    found = [(NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    numbered = sorted((int(m[1]), int(m[2] or 0), path) for m, path in found if m)
    return [(step, path) for step, _, path in numbered]


def write_batch(path: Path, columns: Mapping[str, Column], about: Mapping[str, object]) -> None:
    """Write the file of a batch, completely or not at all. Raises OSError, pyarrow.ArrowException."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table_of(columns, str(about.get("text", FULL)))
    table = table.replace_schema_metadata({KEY: json.dumps(about).encode()})
    compression = "zstd" if pa.Codec.is_available("zstd") else "snappy"
    rows = row_group(table)
    replace(path, lambda partial: pq.write_table(table, partial, compression=compression, row_group_size=rows))


def about_of(schema: Any) -> dict[str, Any] | None:
    """What a file says of itself, from the pyarrow Schema; None for a file that is none of a rollout log."""
    try:
        found = json.loads((schema.metadata or {})[KEY])
    except (KeyError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("schema"), int) else None
