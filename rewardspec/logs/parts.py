"""A file of rollouts in parts: some rows at a time, as they are in the file, so that a file of any size can be read.

for part in RolloutFile(Path("rollouts.jsonl")).parts(256):
    rows = part.rows()
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rewardspec.logs.rows import JSON_TEXT, PARQUET, BadLog, Unread, no_lines, repeated, row_of, unfolded, wrong_kind
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

BLOCK = 1 << 20  # bytes
BATCH = 256  # rows


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a file.

    path: of the file. first: the index of the first. lines: of JSON lines, without line breaks. batch: of Parquet, a
    pyarrow RecordBatch. written: the columns of the batch that hold JSON text.
    """

    path: Path
    first: int
    lines: Sequence[bytes] | None = None
    batch: Any = None
    written: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.lines) if self.lines is not None else int(self.batch.num_rows)

    def rows(self) -> list[dict[str, Any] | Unread]:
        """The rows, parsed. Raises BadLog for a column that Python cannot hold."""
        if self.lines is not None:
            return [row_of(line.decode("utf-8", "surrogateescape")) for line in self.lines]
        import pyarrow

        names = self.batch.schema.names
        columns = []
        for name, column in zip(names, self.batch.columns, strict=True):
            try:
                columns.append(column.to_pylist())
            except (ValueError, OverflowError, ImportError, pyarrow.ArrowException) as error:
                raise BadLog(
                    f"column `{shorten(name)}` of {shown(self.path)} cannot be read: {shorten(str(error), 80)}"
                ) from None
        rows: list[dict[str, Any] | Unread] = [
            dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)
        ]
        if not self.written:
            return rows
        return [unfolded(row, self.written) for row in rows if isinstance(row, dict)]

    def digests(self, rows: Sequence[dict[str, Any] | Unread]) -> list[str]:
        """A hash of each row, 16 hexadecimal digits. rows: as `rows` gives them."""
        held = self.lines
        if held is None:
            content = [row if isinstance(row, dict) else row.text for row in rows]
            held = [json.dumps(one, sort_keys=True, default=repr).encode() for one in content]
        return [hashlib.blake2b(one, digest_size=8).hexdigest() for one in held]


class RolloutFile:
    """A file of rollouts: Parquet if it starts with Parquet's magic bytes, else JSON lines.

    count: its rows. schema: of Parquet, pyarrow's. at: where it is read, if that is a copy; it is read several times.
    Raises BadLog for a file of another kind, OSError.
    """

    def __init__(self, path: Path, at: Path | None = None):
        self.path, self.at = path, at or path
        self.schema: Any = None
        self.written: list[str] = []  # columns that hold JSON text
        with open(self.at, "rb") as file:
            head = file.read(4096)
        if head.startswith(b"PAR1"):
            self._open_table()
        elif path.suffix.lower() in PARQUET:
            why = "it looks like JSON lines: name it .jsonl" if head[:1] == b"{" else "it does not start with PAR1"
            raise BadLog(f"{shown(path)} is not a Parquet file: {why}")
        else:
            wrong = wrong_kind(head)
            if wrong:
                raise BadLog(f"{shown(path)} {wrong}")
            self.count = self._count_lines()
        self.before = self._state()

    def parts(self, size: int) -> Iterator[Part]:
        """The rows, up to `size` in a part. Raises BadLog, OSError."""
        yield from self._batches(size) if self.schema is not None else self._lines(size)

    def lines(self) -> Iterator[bytes]:
        """The lines of JSON lines. Raises BadLog for Parquet."""
        if self.schema is not None:
            raise BadLog(f"{shown(self.path)} is Parquet, but must be JSON lines here")
        return (line for part in self._lines(BATCH) for line in part.lines or ())

    def rows(self) -> list[dict[str, Any] | Unread]:
        """All rows, parsed. Raises BadLog, also if none is a rollout; OSError."""
        rows = [row for part in self.parts(BATCH) for row in part.rows()]
        if not any(isinstance(row, dict) for row in rows):
            raise self.without_rows()
        return rows

    def check_unchanged(self) -> None:
        """Raise BadLog if the file was written since it was opened."""
        if self._state() != self.before:
            raise BadLog(f"{shown(self.path)} was changed while it was read: run the command again")

    def without_rows(self) -> BadLog:
        """The error for a file in which no row is a rollout."""
        for part in self.parts(BATCH):
            for place, row in enumerate(part.rows(), part.first + 1):
                if isinstance(row, Unread) and row.text.strip():
                    says = "" if self.schema is not None else f"; the file {no_lines(row.text.rstrip(chr(13)))}"
                    return BadLog(f"{shown(self.path)}:{place}: {row.reason}{says}")
        return BadLog(f"{shown(self.path)} has no rollouts: its lines are empty")

    def _state(self) -> tuple[int, int, int]:
        found = os.stat(self.at)
        return found.st_size, found.st_mtime_ns, found.st_ino

    def _count_lines(self) -> int:
        count, last, returns = 0, b"\n", False
        with open(self.at, "rb") as file:
            while block := file.read(BLOCK):
                count += block.count(b"\n")
                returns = returns or (not count and b"\r" in block.strip())
                last = block[-1:]
        if not count and returns:
            raise BadLog(f"{shown(self.path)} has lines that end in CR only: end them in LF (`tr '\\r' '\\n'`)")
        return count + (last != b"\n")

    def _lines(self, size: int) -> Iterator[Part]:
        first = 0
        with open(self.at, "rb") as file:
            if file.read(3) != b"\xef\xbb\xbf":
                file.seek(0)
            while lines := list(islice(file, size)):
                yield Part(self.path, first, [line.rstrip(b"\n").rstrip(b"\r") for line in lines])
                first += len(lines)

    def _open_table(self) -> None:
        try:
            import pyarrow.parquet
        except ModuleNotFoundError:
            raise BadLog("reading Parquet needs pyarrow: pip install 'rewardspec[logs]'") from None
        try:
            with pyarrow.parquet.ParquetFile(self.at) as file:
                self.schema, self.count = file.schema_arrow, file.metadata.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise BadLog(f"{shown(self.path)} is not a readable Parquet file: {shorten(str(error), 80)}") from None
        names = self.schema.names
        twice = repeated(names)
        if twice is not None:
            raise BadLog(f"{shown(self.path)} has two columns called `{shorten(twice)}`")
        if not self.count:
            raise BadLog(f"{shown(self.path)} has no rollouts: it has no rows")
        self.written = [f.name for f in self.schema if (f.metadata or {}).items() >= JSON_TEXT.items()]

    def _batches(self, size: int) -> Iterator[Part]:
        import pyarrow.parquet

        first = 0
        try:
            # neither mapped nor read ahead: both would hold a row group in memory
            with pyarrow.parquet.ParquetFile(self.at, buffer_size=BLOCK, pre_buffer=False) as file:
                for batch in file.iter_batches(size, use_threads=False):
                    yield Part(self.path, first, None, batch, self.written)
                    first += batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise BadLog(f"{shown(self.path)} is not a readable Parquet file: {shorten(str(error), 80)}") from None


@contextmanager
def opened(path: Path, folder: Path | None = None) -> Iterator[RolloutFile]:
    """The file; of a pipe, which can be read once, a copy that is removed afterwards. folder: where a copy is made."""
    if stat.S_ISREG(os.stat(path).st_mode):
        yield RolloutFile(path)
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rewardspec-") as made:
        copy = Path(made, "rollouts")
        with open(path, "rb") as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, BLOCK)
        yield RolloutFile(path, copy)
