"""Limits on what a process of a program under test can reach and use. Linux only, by ctypes: Python lacks most calls.

In the modes `root` and `user` the process has separate namespaces: no network and no other processes; of the file
system only the Python installation and the system's libraries, read-only, and an empty folder in memory. `root` needs
CAP_SYS_ADMIN, `user` a kernel that lets every user create namespaces. In `root` and `other`, which only root can use,
programs run as a separate user. `limits` has only resource limits.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import sys

MODES = ("root", "user", "other", "limits")  # from the strictest
PROCESSES = 64  # processes and threads of a program
FILES = 128  # open files
FILE_BYTES = 16 << 20
FOLDER_BYTES = 64 << 20
STACK_BYTES = 64 << 20

_PDEATHSIG, _DUMPABLE, _NO_NEW_PRIVS, _SUBREAPER = 1, 4, 38, 36
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _BIND, _REC, _PRIVATE, _DETACH = 1, 2, 4, 0x1000, 0x4000, 0x40000, 2
_MOUNT_SETATTR, _AT_RECURSIVE, _AT_FDCWD = 442, 0x8000, -100  # the same number on every architecture
_CAPABILITY_VERSION = 0x20080522
_NOBODY = 65534
_OWN_IDS = 0x40000000  # user ids that no system assigns

_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _prctl(option: int, value: int) -> None:
    _call("prctl", _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    text = [None if part is None else os.fsencode(part) for part in (source, target, kind, data)]
    _call(f"mount {target}", _libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]))


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends. parent: the parent's id, 0 if it is in another pid namespace."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(1)


class Confinement:
    """The confinement of this process. folder: the working directory of programs. uid: their user, or None.

    Not a dataclass: importing that module takes longer than running a program.
    """

    def __init__(self, mode: str, folder: str, uid: int | None):
        self.mode, self.folder, self.uid = mode, folder, uid

    @property
    def alone(self) -> bool:
        """Whether only this process and the program's are visible, and only the program's files can be written."""
        return self.mode in ("root", "user")

    def fresh_folder(self) -> None:
        """Empty the folder of everything that an earlier test wrote."""
        if not self.alone:
            remove(self.folder)
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if self.uid is not None:
                os.chown(self.folder, self.uid, self.uid)
            return
        os.chdir("/")
        _libc.umount2(os.fsencode(self.folder), _DETACH)  # fails before the first test: nothing is mounted yet
        own = f",uid={self.uid},gid={self.uid}" if self.uid is not None else ""
        _mount("tmpfs", self.folder, "tmpfs", _NOSUID | _NODEV, f"size={FOLDER_BYTES},nr_inodes=4096,mode=700{own}")

    def kill_all(self) -> None:
        """Kill every process of the program, and wait until all have ended."""
        if self.alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # this is process 1: all others are the program's
        elif self.uid is not None:
            killer = os.fork()
            if killer == 0:
                with contextlib.suppress(OSError):
                    os.setresuid(self.uid, self.uid, self.uid)
                    os.kill(-1, signal.SIGKILL)  # all other processes of this user
                os._exit(0)
            os.waitpid(killer, 0)
        while True:
            if not self.alone:
                _kill_descendants()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def drop(self, memory: int, seconds: float) -> None:
        """Give up all privileges for good. memory: bytes of address space; seconds: of CPU time, at least."""
        own = _threads_of(os.getuid()) if self.mode == "limits" else 0
        limits = {
            resource.RLIMIT_AS: memory,
            resource.RLIMIT_CPU: math.ceil(seconds) + 1,
            resource.RLIMIT_FSIZE: FILE_BYTES,
            resource.RLIMIT_NOFILE: FILES,
            resource.RLIMIT_NPROC: PROCESSES + own,
            resource.RLIMIT_CORE: 0,
        }
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
            resource.setrlimit(resource.RLIMIT_STACK, (min(STACK_BYTES, hard) if hard > 0 else STACK_BYTES, hard))
        for kind, value in limits.items():
            hard = resource.getrlimit(kind)[1]
            value = min(value, hard) if hard != resource.RLIM_INFINITY else value
            resource.setrlimit(kind, (value, value))
        os.setsid()
        os.chdir(self.folder)
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)  # drops every capability
        elif self.mode == "user":
            header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
            _call("capset", _libc.capset(header, (ctypes.c_uint32 * 6)()))
        _prctl(_NO_NEW_PRIVS, 1)
        die_with_parent(0)  # a change of user has cleared it


def hide() -> None:
    """Prevent processes of the same user from inspecting this one."""
    _prctl(_DUMPABLE, 0)


def enter(mode: str, folder: str) -> Confinement:
    """Confine this process and its forks. folder: an empty folder. Raises OSError if the kernel refuses.

    In a mode with namespaces the call returns in a new process, which is process 1; the calling one waits and exits.
    """
    uid = _OWN_IDS + os.getpid() if mode in ("root", "other") else None
    if mode in ("other", "limits"):
        _prctl(_SUBREAPER, 1)
        os.chmod(os.path.dirname(folder), 0o711)
        return Confinement(mode, folder, uid)
    os.setsid()
    user, group = os.getuid(), os.getgid()
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET | (_NEWUSER if mode == "user" else 0)
    _call("unshare", _libc.unshare(flags))
    if mode == "user":
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_NOBODY} {user} 1")
        _write("/proc/self/gid_map", f"{_NOBODY} {group} 1")
    first = os.fork()
    if first:
        os.close(1)  # so that a reader of the output waits only for the new process
        os.waitpid(first, 0)
        os._exit(0)
    die_with_parent(0)
    return Confinement(mode, _new_root(folder), uid)


def _new_root(root: str) -> str:
    """Make `root` the root of the file system, and return the programs' folder in it."""
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID, "size=1m,mode=755")
    shown = ["/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/nix/store", "/etc/ld.so.cache", *sys.path]
    shown += [os.path.join(sys.base_prefix, "lib"), os.path.join(sys.base_exec_prefix, "lib")]
    for path in dict.fromkeys(map(os.path.normpath, shown)):
        inside = root + path
        if not os.path.exists(path) or os.path.lexists(inside):
            continue
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), inside)
            continue
        if os.path.isdir(path):
            os.mkdir(inside)
        else:
            _write(inside, "")
        _mount(path, inside, None, _BIND | _REC)
    for name in ("dev", "program"):
        os.mkdir(f"{root}/{name}")
    if not os.path.lexists(f"{root}/tmp"):  # Python may be installed there
        os.symlink("program", f"{root}/tmp")
    _restrict(root, _RDONLY | _NOSUID | _NODEV, _AT_RECURSIVE)
    _mount("tmpfs", f"{root}/dev", "tmpfs", _NOSUID, "size=64k,mode=755")
    for name in ("null", "zero", "full", "random", "urandom"):
        _write(f"{root}/dev/{name}", "")
        _mount(f"/dev/{name}", f"{root}/dev/{name}", None, _BIND)
    _restrict(f"{root}/dev", _RDONLY | _NOSUID, 0)
    os.chroot(root)  # leaving it needs a capability, and namespaces that give one are refused
    os.chdir("/")
    return "/program"


def _restrict(path: str, flags: int, how: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    arguments = _AT_FDCWD, os.fsencode(path), how, ctypes.byref(attributes), ctypes.sizeof(attributes)
    _call(f"mount_setattr {path}", _libc.syscall(_MOUNT_SETATTR, *arguments))


def remove(folder: str) -> None:
    """Remove the folder of a program that has ended, with any content."""
    import subprocess  # slow to import, and not needed with namespaces

    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):  # any depth; neither follows links
        subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _stat(pid: str) -> list[str]:
    """The fields of a process in /proc, from its state on; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _descendants() -> set[int]:
    """The ids of all descendants of this process, which adopts orphans."""
    parents = {int(pid): _stat(pid)[1:2] for pid in os.listdir("/proc") if pid.isdigit()}
    found: set[int] = set()
    last = {os.getpid()}
    while last:
        last = {pid for pid, parent in parents.items() if parent and int(parent[0]) in last} - found
        found |= last
    return found


def _kill_descendants() -> None:
    stopped: set[int] = set()
    while new := _descendants() - stopped:  # a stopped process starts no other, and counts in the limit
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _threads_of(uid: int) -> int:
    """The number of the user's threads, which the kernel's limit includes."""
    total = 0
    for pid in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            if pid.isdigit() and os.stat(f"/proc/{pid}").st_uid == uid:
                total += int(_stat(pid)[17])
    return total
