"""One limit of requests and tokens a minute, for all processes that ask an endpoint.

permits = Permits(requests=60, tokens=None)
permits.wait(tokens=500, now=0.0)  # 0.0: the seconds to wait before the request
permits.wait(tokens=500, now=0.0)  # 1.0
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any


@dataclass
class Permits:
    """Requests evenly in time. requests, tokens: the most in a minute, None for no limit."""

    requests: float | None = None
    tokens: float | None = None
    _free: float = float("-inf")  # when the next request may be sent

    def wait(self, tokens: int, now: float) -> float:
        """The seconds until a request of so many tokens may be sent. It counts as sent."""
        begin = max(self._free, now)
        takes = max(60 / self.requests if self.requests else 0.0, 60 * tokens / self.tokens if self.tokens else 0.0)
        self._free = begin + takes
        return begin - now

    def wait_now(self, tokens: int) -> float:
        return self.wait(tokens, time.monotonic())


def shared(name: str, requests: float | None, tokens: float | None) -> Any:
    """The actor of the cluster that hands out permits. It is ended with its handle."""
    import ray

    actor: Any = ray.remote(Permits)
    return actor.options(name=name, num_cpus=0, max_restarts=-1, max_task_retries=-1, get_if_exists=True).remote(
        requests, tokens
    )


def ask_actor(actor: Any) -> None:
    """Have the judge's requests of this process wait for permits of an actor."""
    from rewardspec.rewards.judge.client import ask_first

    async def permit(tokens: int) -> None:
        seconds = await asyncio.wrap_future(actor.wait_now.remote(tokens).future())
        await asyncio.sleep(seconds)

    ask_first(permit)
