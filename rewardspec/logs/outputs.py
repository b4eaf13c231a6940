"""Files that commands write: looked at before anything starts, held by one run at a time, whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rewardspec.text.shown import shown

WRITING, LOCK = ".writing", ".lock"  # what stands beside an output while it is made


class BadPath(ValueError):
    """Files that cannot be read and written beside each other. The message has a line for each."""


def beside(output: Path, suffix: str) -> Path:
    return output.with_name(output.name + suffix)


def check_paths(output: Path, reads: Mapping[str, Path], suffixes: Mapping[str, str] = {}) -> Path:
    """Where an output really is, links followed. Raises BadPath for what would go wrong, all of it.

    reads: what each file that is read is, `spec` say, and the file. suffixes: what else the command writes, by
    what stands behind the name of the output.
    """
    real = Path(os.path.realpath(output))
    half = "what is half written"
    suffixes = {WRITING: half, LOCK: "its lock", **suffixes, **{suffix + WRITING: half for suffix in suffixes}}
    problems = []
    if real.is_dir():
        problems.append(f"{shown(output)} is a folder: name a file in it")
    elif real.exists() and not real.is_file():
        problems.append(f"{shown(output)} is no regular file")
    elif not real.parent.is_dir():
        problems.append(f"there is no folder {shown(real.parent)} to write {shown(output.name)} into")
    ending = next((suffix for suffix in suffixes if output.name.lower().endswith(suffix)), None)
    if ending is not None:
        problems.append(
            f"{shown(output)} ends in {ending}, as {suffixes[ending]} does beside an output: name it otherwise"
        )
    for what, path in reads.items():
        if is_same(path, real):
            problems.append(f"{shown(path)} would be written over: it is the {what}")
        for suffix, use in suffixes.items():
            if is_same(path, beside(real, suffix)):
                problems.append(
                    f"{shown(path)}, the {what}, has the name of {use} beside {shown(output)}: name another output"
                )
    for suffix, use in suffixes.items():
        path = beside(real, suffix)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            problems.append(f"{shown(path)} is in the way of {use}: it is no regular file")
    if problems:
        raise BadPath("\n".join(problems))
    return real


def is_same(one: Path, other: Path) -> bool:
    """Whether two names are of one file: by links of either kind, or in another case where cases do not count."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


_held: set[int] = set()  # descriptors of locks: a child that outlives this process must not keep them


def _let_go() -> None:
    for descriptor in list(_held):
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def held(output: Path) -> Iterator[None]:
    """An output for this run alone. The lock ends with the process, however that ends. Raises BadPath, OSError."""
    import fcntl

    path = beside(output, LOCK)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(descriptor, 20).decode("ascii", "replace").strip()
            os.close(descriptor)
            whose = f" (process {other})" if other.isdigit() else ""
            raise BadPath(
                f"another run{whose} is writing {shown(output)}: wait for it, or name another output"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(path, descriptor):
            break
        os.close(descriptor)  # the run before has ended, and taken its lock away with it
    _held.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        _held.discard(descriptor)
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def replace(output: Path, write: Callable[[Path], None]) -> None:
    """Write a file that has its name only once it is whole; it keeps the permissions of the one before."""
    partial = beside(output, WRITING)
    partial.unlink(missing_ok=True)
    write(partial)
    if output.exists():
        os.chmod(partial, stat.S_IMODE(output.stat().st_mode))
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, output)
