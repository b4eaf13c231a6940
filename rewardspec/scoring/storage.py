"""Files of rollouts at any address, in pieces that can be read anywhere; and outputs that are complete or absent.

An address is a path, or a URI of pyarrow (`s3://`, `gs://`, `hdfs://`, `file://`) or of fsspec.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from rewardspec.logs.outputs import BadPath
from rewardspec.logs.parts import Part, RolloutFile
from rewardspec.logs.rows import JSON_TEXT, PARQUET, BadLog, no_lines, wrong_kind
from rewardspec.text.diagnostics import shorten
from rewardspec.text.shown import shown

PIECE_BYTES = 4 << 20  # of JSON lines in a piece
PIECE_ROWS = 4096  # of Parquet in a piece, or one row group if that has more
DONE = "_SUCCESS"  # the file that is written last into a folder of output


@dataclass(frozen=True)
class Place:
    """An address, and the file system that has it. path: in that file system."""

    address: str
    system: Any  # a pyarrow FileSystem
    path: str

    def __truediv__(self, name: str) -> Place:
        return self.longer(f"/{name}")

    def longer(self, more: str) -> Place:
        """The place whose path goes on so; what a URI says after `?` stays at its end."""
        path, mark, options = self.address.partition("?") if "://" in self.address else (self.address, "", "")
        return Place(path + more + mark + options, self.system, self.path + more)

    @property
    def is_local(self) -> bool:
        return bool(self.system.type_name == "local")

    def read(self) -> bytes:
        with self.system.open_input_stream(self.path) as file:
            return bytes(file.readall())

    def write(self, data: bytes) -> None:
        """Write a file: on a local disk and in an object store wholly or not at all.

        On a disk what a killed process leaves is beside the folder: all that is in a folder of output is output.
        """
        beside = os.path.dirname(os.path.dirname(self.path))
        writing = os.path.join(beside, f".{uuid4().hex}") if self.is_local else self.path
        with self.system.open_output_stream(writing) as file:
            file.write(data)
        if self.is_local:
            os.replace(writing, self.path)

    def names(self) -> list[str]:
        """The names of the files in a folder; none if there is no folder."""
        from pyarrow.fs import FileSelector, FileType

        found = self.system.get_file_info(FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == FileType.File)

    def make_folder(self) -> None:
        self.system.create_dir(self.path, recursive=True)

    def remove_folder(self) -> None:
        if self.is_folder():
            self.system.delete_dir(self.path)

    def is_folder(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self.system.get_file_info(self.path).type == FileType.Directory)

    def exists(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self.system.get_file_info(self.path).type != FileType.NotFound)


def place(address: str) -> Place:
    """The place of an address; of a path, the absolute one. Raises BadPath for an address that cannot be read."""
    try:
        from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem
    except ModuleNotFoundError:
        raise BadPath("files at addresses are read with pyarrow: pip install 'rewardspec[ray]'") from None
    import pyarrow

    if "://" not in address:
        path = os.path.abspath(address)
        return Place(path, LocalFileSystem(), path)
    path, mark, options = address.partition("?")
    address = path.rstrip("/") + mark + options
    try:
        return Place(address, *FileSystem.from_uri(address))
    except pyarrow.ArrowNotImplementedError:
        pass
    except pyarrow.ArrowInvalid as error:
        if "nrecognized filesystem" not in str(error):
            raise BadPath(f"{shown(address)} cannot be read: {shorten(str(error), 120)}") from None
    try:
        import fsspec  # type: ignore[import-untyped]

        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise BadPath(
            f"{shown(address)} cannot be read: neither pyarrow nor fsspec opens it ({shorten(str(error), 120)})"
        ) from None
    return Place(address, PyFileSystem(FSSpecHandler(system)), path)


at = cache(place)  # in processes that read many pieces


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file: lines that begin in these bytes, or row groups.

    name: of the file, for messages. size, changed: of the file, to find that it was written meanwhile.
    """

    address: str
    name: str
    table: bool
    start: int
    stop: int
    size: int
    changed: str

    def parts(self, size: int) -> Iterator[Part]:
        """The rows, `first` counted from the piece's own. Raises BadLog, OSError."""
        yield from self._batches(size) if self.table else self._lines(size)

    def check_unchanged(self) -> None:
        found = at(self.address)
        if _state(found.system.get_file_info(found.path)) != (self.size, self.changed):
            raise BadLog(f"{shown(self.name)} was changed while it was read: run the command again")

    def _lines(self, size: int) -> Iterator[Part]:
        lines = self._held()
        for first in range(0, len(lines), size):
            yield Part(_named(self.name), first, [one.rstrip(b"\r") for one in lines[first : first + size]])

    def _held(self) -> list[bytes]:
        """The lines that begin in this piece."""
        found = at(self.address)
        begin = max(self.start - 1, 0)
        with found.system.open_input_file(found.path) as file:
            file.seek(begin)
            data = bytes(file.read(self.stop - begin))
            if self.start:
                first = data.find(b"\n") + 1
                if not first:
                    return []
                data = data[first:]
            else:
                data = data.removeprefix(b"\xef\xbb\xbf")
            more = [data]
            if data and not data.endswith(b"\n"):  # the rest of the last line
                while chunk := bytes(file.read(1 << 16)):
                    end = chunk.find(b"\n") + 1
                    more.append(chunk[:end] if end else chunk)
                    if end:
                        break
        data = b"".join(more)
        if not self.start and b"\n" not in data and b"\r" in data.strip():
            raise BadLog(f"{shown(self.name)} has lines that end in CR only: end them in LF (`tr '\\r' '\\n'`)")
        return data.removesuffix(b"\n").split(b"\n") if data else []

    def _batches(self, size: int) -> Iterator[Part]:
        import pyarrow

        first = 0
        try:
            with _table(at(self.address)) as file:
                written = _written(file.schema_arrow)
                groups = range(self.start, self.stop)
                for batch in file.iter_batches(size, row_groups=groups, use_threads=False):
                    yield Part(_named(self.name), first, None, batch, written)
                    first += batch.num_rows
        except pyarrow.ArrowException as error:
            raise BadLog(f"{shown(self.name)} is not a readable Parquet file: {shorten(str(error), 80)}") from None


class Pieces(RolloutFile):
    """Consecutive pieces of one file, read as a file."""

    def __init__(self, pieces: Sequence[Piece]):
        self.pieces, self.path, self.schema, self.written = pieces, _named(pieces[0].name), None, []
        if pieces[0].table:
            with _table(at(pieces[0].address)) as file:
                self.schema = file.schema_arrow
            self.written = _written(self.schema)

    def parts(self, size: int) -> Iterator[Part]:
        first = 0
        for piece in self.pieces:
            for part in piece.parts(size):
                yield Part(part.path, first, part.lines, part.batch, part.written)
                first += len(part)

    def check_unchanged(self) -> None:
        self.pieces[0].check_unchanged()


def pieces_of(address: str) -> list[Piece]:
    """The pieces of a file, or of all files in a folder by their names, but those that begin with `_` or `.`.

    Raises BadLog for files that are no rollouts, BadPath, OSError.
    """
    from pyarrow.fs import FileSelector, FileType

    found = place(address)
    info = found.system.get_file_info(found.path)
    if info.type == FileType.NotFound:
        raise BadPath(f"there is nothing at {shown(address)}")
    if info.type == FileType.File:
        return list(_pieces(found, found.address, info))
    inside = found.system.get_file_info(FileSelector(found.path, recursive=True))
    pieces: list[Piece] = []
    for one in sorted(inside, key=lambda info: str(info.path)):
        name = posixpath.relpath(one.path, found.path)
        hidden = any(word.startswith(("_", ".")) for word in name.split("/"))
        if one.type == FileType.File and one.size and not hidden:
            pieces += _pieces(found / name, name, one)
    if not pieces:
        raise BadLog(f"{shown(address)} has no files of rollouts")
    if len({piece.table for piece in pieces}) > 1:
        raise BadLog(f"{shown(address)} has Parquet and JSON lines: score one of them, in a folder of its own")
    return pieces


def _pieces(found: Place, name: str, info: Any) -> Iterator[Piece]:
    import pyarrow

    state = _state(info)
    with found.system.open_input_file(found.path) as file:
        head = bytes(file.read(4096))
    if not head.startswith(b"PAR1"):
        wrong = "does not start with PAR1" if name.lower().endswith(PARQUET) else wrong_kind(head)
        if wrong:
            raise BadLog(f"{shown(name)} {wrong}")
        for start in range(0, info.size, PIECE_BYTES):
            yield Piece(found.address, name, False, start, min(start + PIECE_BYTES, info.size), *state)
        return
    try:
        with _table(found) as table:
            names = table.schema_arrow.names
            rows = [table.metadata.row_group(i).num_rows for i in range(table.num_row_groups)]
    except (pyarrow.ArrowException, OSError) as error:
        raise BadLog(f"{shown(name)} is not a readable Parquet file: {shorten(str(error), 80)}") from None
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise BadLog(f"{shown(name)} has two columns called `{shorten(twice)}`")
    start, held = 0, 0
    for i, count in enumerate(rows):
        if held and held + count > PIECE_ROWS:
            yield Piece(found.address, name, True, start, i, *state)
            start, held = i, 0
        held += count
    if held:
        yield Piece(found.address, name, True, start, len(rows), *state)


def without_rows(pieces: Sequence[Piece]) -> BadLog:
    """The error for pieces in which no row is a rollout."""
    first = pieces[0]
    text = next((row.decode("utf-8", "replace") for row in ([] if first.table else first._held()) if row.strip()), "")
    return BadLog(f"{shown(first.name)} {no_lines(text) if text else 'has no rollouts: its lines are empty'}")


def is_half_moved(output: Place, beside: Place) -> bool:
    """Whether a folder has what a run moved there before it was ended: then the same run moves all files again."""
    names = output.names()
    ours = all(re.fullmatch(r"part-\d{5,}\.\w+", name) for name in names)
    return output.is_folder() and DONE not in names and ours and beside.is_folder()


def publish(made: Place, output: Place, again: bool = False) -> None:
    """Make a folder of files the output, all or none, with a last file `_SUCCESS`.

    On a local disk it is renamed. Elsewhere the files are moved one by one, and `_SUCCESS` last: without it a folder
    is not complete. again: where it has files that an earlier run moved. Raises BadPath if the output is there by now.
    """
    if output.exists() and output.names() and not again:
        raise BadPath(f"{shown(output.address)} exists by now: move it away, and run the command again")
    if made.is_local:
        (made / DONE).write(b"")
        if output.exists():
            os.rmdir(output.path)
        os.makedirs(os.path.dirname(output.path), exist_ok=True)
        os.replace(made.path, output.path)
        return
    output.make_folder()
    for name in made.names():
        made.system.move((made / name).path, (output / name).path)
    (output / DONE).write(b"")


def _table(found: Place) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(found.system.open_input_file(found.path), pre_buffer=False)


def _written(schema: Any) -> list[str]:
    return [f.name for f in schema if (f.metadata or {}).items() >= JSON_TEXT.items()]


def _state(info: Any) -> tuple[int, str]:
    return int(info.size), str(info.mtime_ns)


def _named(name: str) -> Path:
    """A name where a path is expected, which only messages show: a Path would make one slash of `s3://`."""
    return cast(Path, name)
