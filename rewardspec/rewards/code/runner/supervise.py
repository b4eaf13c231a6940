"""The process that a sandbox starts: it runs a program on its tests, one after the other.

It reads a request from file 0 and writes JSON lines to file 1: `{"ready": true}` or `{"refused": why}`, then one for
each test. Expected values of tests in Python are in a separate file, which the program's processes never have open.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable

from rewardspec.rewards.code.runner.confine import Confinement, die_with_parent, enter, hide

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than running a program
if TYPE_CHECKING:
    from typing import Any

TESTER_BYTES = 1 << 30  # of address space
# modules that programs often import: imported once here instead of in each test
COMMON: tuple[str, ...] = (
    "bisect",
    "collections",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "random",
    "re",
    "string",
)
COMMON += ("threading", "typing")


def main() -> None:
    with open(0, "rb", closefd=False) as file:
        request = json.load(file)
    die_with_parent(request["parent"])
    in_python = request["secrets"] is not None
    if in_python:  # only then: it is slow; and before `enter`, which changes the file system
        importlib.import_module("rewardspec.rewards.code.runner.tester")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a trainer may ignore or block it, which is inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        confinement = enter(request["mode"], request["folder"])
        hide()
        confinement.fresh_folder()
    except OSError as error:
        _report({"refused": str(error)})
        return
    _report({"ready": True})
    for name in COMMON:
        if name in request["program"]:
            importlib.import_module(name)
    gc.freeze()
    end = time.monotonic() + request["total"]
    for i in range(request["count"]):
        seconds = min(request["timeout"], end - time.monotonic())
        if seconds <= 0:
            _report({"end": "timeout"})
            continue
        if i:
            confinement.fresh_folder()
        run = _run_test_in_python if in_python else _run_with_input
        _report(run(confinement, request, i, seconds))
    confinement.kill_all()


def _report(line: dict[str, Any]) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _fork(confinement: Confinement, memory: int, seconds: float, keep: dict[int, int], run: Callable[[], int]) -> int:
    """The id of a new confined process, which calls `run` and exits with its status.

    keep: its open files, by their numbers there. All others are closed; 0, 1 and 2 are /dev/null if not given.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        high = {number: os.dup2(file, 200 + number) for number, file in keep.items()}  # so that no file is overwritten
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in {0, 1, 2, *high}:
            os.dup2(high.get(number, nothing), number)
        os.closerange(max(2, *keep) + 1, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        confinement.drop(memory, seconds)
        os.environ.clear()
        os.environ.update(PATH="/usr/bin:/bin", HOME=confinement.folder, TMPDIR=confinement.folder, LANG="C.UTF-8")
        status = run()
    finally:
        os._exit(status)


def _run_with_input(confinement: Confinement, request: dict[str, Any], i: int, seconds: float) -> dict[str, Any]:
    """The output of the program on one test by standard input, and how it ended."""
    source = os.memfd_create("input")
    _write_all(source, request["inputs"][i].encode("utf-8", "surrogatepass"))
    os.lseek(source, 0, os.SEEK_SET)
    reader, writer = os.pipe()

    def run() -> int:
        return _as_main(request["program"])

    pid = _fork(confinement, request["memory"], seconds, {0: source, 1: writer}, run)
    os.close(source)
    os.close(writer)
    written, end = _watch(pid, reader, request["output"], seconds)
    confinement.kill_all()
    written += _rest(reader, request["output"] + 1 - len(written))
    os.close(reader)
    if len(written) > request["output"]:
        end = "output"
    return {"end": end, "written": written.decode("utf-8", "replace") if end != "output" else ""}


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _as_main(program: str) -> int:
    """Run the program as a script, with its exit handlers; its exit status."""
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = ["program.py"]
    status = 0
    try:
        run_program(program, "__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        status = 1
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # waits for the program's threads, as Python does at its end
    importlib.import_module("atexit")._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BaseException:
        status = status or 1
    return status & 0xFF


def run_program(program: str, name: str) -> dict[str, object]:
    """The names of the program after running as the module `name`. Raises its exceptions."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(program, "<program>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _watch(pid: int, reader: int, most: int, seconds: float) -> tuple[bytes, str]:
    """The output in `reader` until the process ends, and how it ended. After "timeout" and "output" it still runs."""
    end = time.monotonic() + seconds
    parts: list[bytes] = []
    length = 0
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(ended, select.POLLIN)
    try:
        while True:
            ready = {file for file, _ in poll.poll(max(0.0, end - time.monotonic()) * 1000)}
            if not ready:
                return b"".join(parts), "timeout"
            if reader in ready:
                part = os.read(reader, 1 << 16)
                parts.append(part)
                length += len(part)
                if length > most:
                    return b"".join(parts), "output"
                if not part:
                    poll.unregister(reader)
            if ended in ready:
                status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                assert status is not None  # it has ended
                fine = status.si_code == os.CLD_EXITED and status.si_status == 0
                return b"".join(parts), "ok" if fine else "error"
    finally:
        os.close(ended)


def _rest(reader: int, most: int) -> bytes:
    """The rest of a pipe without writers."""
    os.set_blocking(reader, False)
    parts = []
    while most > 0:
        try:
            part = os.read(reader, min(most, 1 << 16))
        except BlockingIOError:
            break
        if not part:
            break
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _run_test_in_python(confinement: Confinement, request: dict[str, Any], i: int, seconds: float) -> dict[str, Any]:
    """Whether one test in Python passes, and how it ended."""
    import socket

    from rewardspec.rewards.code.runner.converse import Gone, hold_program
    from rewardspec.rewards.code.runner.tester import holds

    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()

    def hold() -> int:
        try:
            hold_program(lambda: run_program(request["program"], "program"), request["setup"], socket.socket(fileno=3))
        except Gone:
            return 0
        return 1

    def decide() -> int:
        hide()
        os.lseek(4, 0, os.SEEK_SET)  # one offset for all testers
        with open(4, "rb") as file:
            case = json.loads(file.read().splitlines()[i])
        _write_all(5, json.dumps(holds(case, socket.socket(fileno=3))).encode())
        return 0

    _fork(confinement, request["memory"], seconds, {3: theirs.fileno()}, hold)
    theirs.close()
    pid = _fork(confinement, TESTER_BYTES, seconds, {3: ours.fileno(), 4: request["secrets"], 5: writer}, decide)
    os.close(writer)
    ours.close()
    written, end = _watch(pid, reader, 1 << 12, seconds)
    confinement.kill_all()
    written += _rest(reader, 1 << 12)
    os.close(reader)
    if end != "ok":
        return {"end": end if end == "timeout" else "error"}
    found = json.loads(written)
    if found.get("unusable"):
        return {"end": "unusable"}
    return {"end": "error" if found["error"] else "ok", "passed": found["passed"]}
