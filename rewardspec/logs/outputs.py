"""Output files: checked before a command starts, locked by one run at a time, written completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rewardspec.text.shown import shown

WRITING, LOCK = ".writing", ".lock"  # suffixes of files next to an output while it is written


class BadPath(ValueError):
    """Paths that a command cannot read and write together. The message has one line for each problem."""


def beside(output: Path, suffix: str) -> Path:
    return output.with_name(output.name + suffix)


def check_paths(output: Path, reads: Mapping[str, Path], suffixes: Mapping[str, str] = {}) -> Path:
    """The real path of an output, links followed. Raises BadPath with all problems.

    reads: the files that the command reads, by what they are, such as `spec`. suffixes: what else the command writes,
    by the suffix that it adds to the name of the output.
    """
    real = Path(os.path.realpath(output))
    half = "the unfinished output"
    suffixes = {WRITING: half, LOCK: "its lock", **suffixes, **{suffix + WRITING: half for suffix in suffixes}}
    problems = []
    if real.is_dir():
        problems.append(f"{shown(output)} is a folder: name a file in it")
    elif real.exists() and not real.is_file():
        problems.append(f"{shown(output)} is not a regular file")
    elif not real.parent.is_dir():
        problems.append(f"there is no folder {shown(real.parent)} to write {shown(output.name)} into")
    ending = next((suffix for suffix in suffixes if output.name.lower().endswith(suffix)), None)
    if ending is not None:
        problems.append(
            f"{shown(output)} ends in {ending}, the suffix of {suffixes[ending]} next to an output: use another name"
        )
    for what, path in reads.items():
        if is_same(path, real):
            problems.append(f"{shown(path)} is the {what} and would be overwritten")
        for suffix, use in suffixes.items():
            if is_same(path, beside(real, suffix)):
                problems.append(
                    f"{shown(path)}, the {what}, has the name of {use} next to {shown(output)}: name another output"
                )
    for suffix, use in suffixes.items():
        path = beside(real, suffix)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            problems.append(f"{shown(path)}, the place of {use}, is not a regular file")
    if problems:
        raise BadPath("\n".join(problems))
    return real


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths are one file: through links, or in different case on a file system that ignores case."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


_held: set[int] = set()  # descriptors of locks: a forked child must not hold them after this process ends


def _let_go() -> None:
    for descriptor in list(_held):
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def held(output: Path) -> Iterator[None]:
    """Lock an output for this run. The lock is released when the process ends, even by a kill.

    Raises BadPath if another run holds it, OSError.
    """
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
        os.close(descriptor)  # the previous run ended and removed its lock
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
    """Write a file under a temporary name and rename it when complete; it keeps the old file's permissions."""
    partial = beside(output, WRITING)
    partial.unlink(missing_ok=True)
    try:
        write(partial)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if output.exists():
        os.chmod(partial, stat.S_IMODE(output.stat().st_mode))
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, output)
