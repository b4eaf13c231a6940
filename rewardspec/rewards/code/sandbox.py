"""Untrusted programs, run in separate processes with limits.

The limits are on time, memory (of each process), files, output and the number of processes. All processes of a program
are killed when a test ends. If the kernel allows it, they cannot reach the network or other processes. Then they can
read only the Python installation and the system's libraries, and write only to an empty folder in memory that is
deleted afterwards. `protections` returns what is in force on this machine.

This protects a trainer from programs that a language model writes: from accidents, and from tricks with the tests. It
is not a security boundary against a determined attacker, who shares the kernel and the hardware. For that, run the
trainer or its rewards in a container or a virtual machine. Linux only.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

OUTPUT_BYTES = 1 << 20  # that a program may write in a test
MARGIN = 20.0  # seconds for everything but the tests
# empty packages: their `__init__` files import libraries of site-packages, which is switched off
_CHILD = """
import sys, types
for name, path in {0!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from rewardspec.rewards.code.runner.supervise import main
main()
"""
_PROBE = "import dataclasses, heapq, sqlite3\nprint(input())"  # modules that are not loaded yet
_log = logging.getLogger(__name__)


class SandboxError(RuntimeError):
    """Programs cannot be run on this machine."""


@dataclass(frozen=True)
class Limits:
    """Limits of a program.

    timeout: wall-clock seconds for one test; total: for all tests of a program; memory: MiB of address space for each
    process.
    """

    timeout: float = 5.0
    total: float = 60.0
    memory: int = 1024


@dataclass(frozen=True)
class Result:
    """The result of one test.

    end: "ok", or how the program failed; "unusable" for a test that cannot be run here. written: its standard output.
    passed: whether a test in Python passed.
    """

    end: Literal["ok", "error", "timeout", "output", "unusable"]
    written: str = ""
    passed: bool = False


@dataclass(frozen=True)
class Protections:
    """What programs are prevented from here; time, memory, file size and output are always limited.

    network: use of any network. reads: reading anything but the Python installation and the system's libraries.
    writes: writing outside their folder, or more than allowed in it. processes: starting more than 64. others: seeing
    or signalling other processes. leftovers: leaving a process behind. why: the kernel's reason, if some are missing.
    """

    network: bool
    reads: bool
    writes: bool
    processes: bool
    others: bool
    leftovers: bool
    why: str = ""


def protections() -> Protections:
    """The protections in force on this machine, found by running a program. Raises SandboxError."""
    mode, why = _mode()
    spaces, apart = mode in ("root", "user"), mode != "limits"
    bounded = mode in ("root", "other") or os.getuid() != 0
    why = why or ("" if bounded else "the kernel does not limit the processes of root")
    return Protections(spaces, spaces, spaces, bounded, apart, apart, why)


def _mode() -> tuple[str, str]:
    with _asking:
        return _strictest()


_asking = threading.Lock()


@lru_cache(maxsize=1)
def _strictest() -> tuple[str, str]:
    """The strictest mode that works here, and why stricter ones do not."""
    if sys.platform != "linux":
        raise SandboxError("programs can be run only on Linux")
    from rewardspec.rewards.code.runner.confine import MODES

    why = []
    for mode in MODES:
        if mode in ("root", "other") and os.getuid() != 0:
            continue
        try:
            found = run_with_inputs(_PROBE, ["héllo"], Limits(), mode=mode)
        except SandboxError as error:
            why.append(f"{mode}: {error}")
            continue
        if found == [Result("ok", "héllo\n")]:
            if mode in ("root", "user"):
                return mode, ""
            _log.warning("programs run with access to the network and the file system (%s)", "; ".join(why))
            return mode, "; ".join(why)
        why.append(f"{mode}: {found[0].end}")
    raise SandboxError("; ".join(why))


def run_with_inputs(program: str, inputs: Sequence[str], limits: Limits, *, mode: str | None = None) -> list[Result]:
    """Run a program as a script, once for each standard input. Raises SandboxError."""
    return _run({"program": program, "inputs": list(inputs), "count": len(inputs), "secrets": None}, limits, mode)


def run_with_tests(
    program: str, setup: str, tests: Sequence[dict[str, Any]], limits: Limits, *, mode: str | None = None
) -> list[Result]:
    """Run a program and then `setup`, once for each test in Python. Raises SandboxError.

    tests: {"imports": ..., "code": ...}, texts in Python, or {"function": name, "args": list, "expected": value}. They
    are decided in a process that runs no code of the program.
    """
    mode = mode or _mode()[0]
    secrets = os.memfd_create("tests")
    try:
        with open(os.dup(secrets), "wb") as file:
            file.writelines(json.dumps(test).encode() + b"\n" for test in tests)
        request = {"program": program, "setup": setup, "count": len(tests), "secrets": secrets}
        return _run(request, limits, mode, secrets)
    finally:
        os.close(secrets)


def _run(request: dict[str, Any], limits: Limits, mode: str | None, *files: int) -> list[Result]:
    mode = mode or _mode()[0]
    home = tempfile.mkdtemp(prefix="rewardspec-")
    try:
        folder = os.path.join(home, "work")
        os.mkdir(folder)
        request |= {"mode": mode, "folder": folder, "parent": os.getpid(), "output": OUTPUT_BYTES}
        request |= {"timeout": limits.timeout, "total": limits.total, "memory": limits.memory << 20}
        lines = _lines(json.dumps(request).encode(), limits.total + MARGIN, files)
    finally:
        try:
            os.rmdir(os.path.join(home, "work"))
            os.rmdir(home)
        except OSError:
            from rewardspec.rewards.code.runner.confine import remove

            remove(home)
    if not lines or "ready" not in lines[0]:
        raise SandboxError(lines[0]["refused"] if lines else "Python does not start")
    found = [Result(**line) for line in lines[1:]]
    # a program that killed its supervisor has failed
    return found + [Result("error")] * (request["count"] - len(found))


def _lines(request: bytes, seconds: float, files: tuple[int, ...]) -> list[dict[str, Any]]:
    folder = Path(__file__).parent
    packages = {
        "rewardspec": str(folder.parents[1]),
        "rewardspec.rewards": str(folder.parent),
        "rewardspec.rewards.code": str(folder),
    }
    command = [sys.executable, "-S", "-s", "-P", "-c", _CHILD.format(packages)]
    # no variable of this process; a fixed hash seed, so that equal programs order their sets equally
    environment = {"PYTHONHASHSEED": "0"}
    if "LD_LIBRARY_PATH" in os.environ:  # some Pythons do not start without it
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            pass_fds=files,
        )
    except OSError as error:
        raise SandboxError(f"cannot start a process: {error.strerror}") from None
    with process:
        alarm = threading.Timer(seconds, process.kill)
        alarm.start()
        try:
            written, _ = process.communicate(request)
        finally:
            alarm.cancel()
            process.kill()
    complete = written.split(b"\n")[:-1]
    return [json.loads(line) for line in complete]
