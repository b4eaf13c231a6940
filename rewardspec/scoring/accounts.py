"""One account of what judges are asked, for several processes: in a file of one machine, or in an actor of Ray.

See `rewardspec.rewards.judge.account`: limits a minute, a budget, and what was used.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rewardspec.rewards.judge.account import Account, Here, Permit, Request, sharing

PAGE = 4096  # bytes that a system writes at once, or not

T = TypeVar("T")


class AccountFile:
    """An account in a file, for processes of one machine. They lock a file beside it; one that is killed frees it."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of(cls, account: Account, path: Path) -> AccountFile:
        path.write_text(account.to_json())
        return cls(path)

    async def permit(self, request: Request) -> Permit:
        return self._do(lambda account: account.permit(request, time.monotonic()))

    async def settle(self, number: int, model: str, said: tuple[int, int] | None) -> None:
        self._do(lambda account: account.settle(number, model, said))

    def recall(self, model: str, requests: int) -> None:
        self._do(lambda account: account.recall(model, requests))

    def account(self) -> Account:
        return self._do(lambda account: account)

    def _do(self, work: Callable[[Account], T]) -> T:
        with open(self.path.with_suffix(".lock"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self.path, "r+b", buffering=0) as file:
                held = file.read()
                account = Account.of_json(held.decode())
                found = work(account)
                # A process that is killed leaves the old or the new: one write does, within a page.
                text = account.to_json().encode().ljust(len(held))
                if len(text) <= PAGE:
                    os.pwrite(file.fileno(), text, 0)
                else:
                    new = self.path.with_suffix(".new")
                    new.write_bytes(text.rstrip())
                    os.replace(new, self.path)
        return found


@contextmanager
def of_processes(account: Account, processes: int) -> Iterator[AccountFile | None]:
    """Have judges of this process use an account; if there are several processes, one in a file that they share.

    Afterwards the account has its counts.
    """
    if processes == 1:
        with sharing(Here(account)):
            yield None
        return
    with tempfile.TemporaryDirectory(prefix="rewardspec-") as folder:
        file = AccountFile.of(account, Path(folder, "account.json"))
        try:
            with sharing(file):
                yield file
        finally:
            account.take(file.account())


class _Actor:
    """The account in an actor of Ray."""

    def __init__(self, account: Account):
        self.account = account

    def permit(self, request: Request) -> Permit:
        return self.account.permit(request, time.monotonic())

    def settle(self, number: int, model: str, said: tuple[int, int] | None) -> None:
        self.account.settle(number, model, said)

    def recall(self, model: str, requests: int) -> None:
        self.account.recall(model, requests)

    def all(self) -> Account:
        return self.account


class OfActor:
    """An account that all workers of a cluster use."""

    def __init__(self, actor: Any):
        self.actor = actor

    async def permit(self, request: Request) -> Permit:
        permit: Permit = await asyncio.wrap_future(self.actor.permit.remote(request).future())
        return permit

    async def settle(self, number: int, model: str, said: tuple[int, int] | None) -> None:
        # waited for: what was measured may be known before, and then the counts are read
        await asyncio.wrap_future(self.actor.settle.remote(number, model, said).future())

    def recall(self, model: str, requests: int) -> None:
        import ray

        ray.get(self.actor.recall.remote(model, requests))


@contextmanager
def on_cluster(account: Account | None) -> Iterator[Any]:
    """The actor that has an account, None without; afterwards the account has its counts.

    It runs on the machine of this process: both end together, so that no count is lost.
    """
    if account is None:
        yield None
        return
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor: Any = ray.remote(_Actor)
    made = actor.options(num_cpus=0, scheduling_strategy=here).remote(account)
    try:
        yield made
    finally:
        with suppress(ray.exceptions.RayError):  # the cluster has ended
            account.take(ray.get(made.all.remote()))
