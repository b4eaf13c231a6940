"""Python processes that need not import torch and DeepSpeed, which takes ten seconds: forks of one that has.

The command of `forks` has a fork run what `python` would run here, with its arguments, environment, folder and
streams. Ray reads its environment when it is imported, and the hooks go into what is imported after them: Ray, OpenRLHF
and rewardspec are imported in the fork.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import contextmanager

# Without its library: it starts in a hundredth of a second.
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    work = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(work).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(work)
    status = server.recv(1)
os._exit(status[0] if status else 1)
"""


@contextmanager
def forks(path):
    """A command that takes arguments as `python` does: `-m MODULE ...` or `FILE ...`. path: of a socket to make."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()  # who comes before the imports are done waits
        number = listening.fileno()
        server = subprocess.Popen([sys.executable, "-W", "ignore", __file__, str(number)], pass_fds=[number])
    try:
        yield [sys.executable, "-I", "-S", "-c", CLIENT, str(path)]
    finally:
        server.kill()
        server.wait()


def serve(listening):
    """Arguments of the program to run. Returns in forks only."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            break
        connection.close()
    listening.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as file:
        arguments, environment, folder = json.loads(file.read(int.from_bytes(length, "big")))
    runs = os.fork()
    if runs:
        select.select([connection, os.pidfd_open(runs)], [], [])
        ended, status = os.waitpid(runs, os.WNOHANG)
        if ended:
            connection.send(bytes([os.waitstatus_to_exitcode(status) % 256]))
        else:  # who asked for it was killed
            os.kill(runs, signal.SIGKILL)
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return arguments


def run(arguments):
    """The exit status of the program, as `python` runs it."""
    try:
        if arguments[0] == "-m":
            sys.argv, sys.path[0] = arguments[1:], os.getcwd()
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(arguments[0]))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    import datasets  # noqa: F401
    import deepspeed  # noqa: F401
    import peft  # noqa: F401
    import transformers.trainer  # noqa: F401

    gc.collect()
    gc.freeze()  # pages that nobody writes to are shared
    status = run([argument for argument in serve(socket.socket(fileno=int(sys.argv[1]))) if argument != "-u"])
    # All that the end of a process does but for freeing every object of those libraries, which takes seconds.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
