"""What judges were asked in a run, and what they may be asked: one account for all processes that ask.

account = Account(Limits(requests=60), Budget(calls=1), {"m": Price(0.15, 0.6)})
account.permit(Request("m", 500, 100), now=0.0)  # Permit(wait=0.0, number=1): send it now
account.settle(1, "m", (480, 20))  # the tokens that the reply named
account.permit(Request("m", 500, 100), now=0.1)  # Permit(spent="calls"): do not send it
account.cost  # 0.000084
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

MILLION = 1_000_000
SOON = 0.1  # seconds until a request that waits for the tokens of others is tried again
LATEST = 900.0  # seconds after which the end of a request is no longer waited for: its process was killed


@dataclass(frozen=True)
class Limits:
    """The most that judges are asked in a minute, by all processes together; None for no limit.

    tokens: of a request, a quarter of its bytes, and the `max_tokens` of its answer. Raises ValueError for no more
    than 0.
    """

    requests: float | None = None
    tokens: float | None = None

    def __post_init__(self) -> None:
        for name, number in (("requests", self.requests), ("tokens", self.tokens)):
            if number is not None and not number > 0:
                raise ValueError(f"{name}={number}: a limit is a number above 0, or None")


@dataclass(frozen=True)
class Budget:
    """The most that judges are asked in a run, by all processes together; None for no end.

    calls: requests sent, retries among them. retries: requests sent again. tokens: read and written. cost: in the
    currency of the prices. minutes: since the first request. Raises ValueError for less than 0.
    """

    calls: float | None = None
    retries: float | None = None
    tokens: float | None = None
    cost: float | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if number is not None and not number >= 0:
                raise ValueError(f"{name}={number}: a part of a budget is a number from 0, or None")


@dataclass(frozen=True)
class Price:
    """The price of a model: for a million tokens that it reads, and that it writes. Raises ValueError below 0."""

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) and number >= 0 for number in (self.prompt, self.completion)):
            raise ValueError(f"{self.prompt}, {self.completion}: prices are numbers from 0")

    def of(self, prompt: float, completion: float) -> float:
        return (self.prompt * prompt + self.completion * completion) / MILLION


@dataclass(frozen=True)
class Request:
    """A request that is to be sent: tokens of the prompt, about, and the most that the answer may have.

    again: whether it was sent before.
    """

    model: str
    prompt: int
    completion: int
    again: bool = False


@dataclass(frozen=True)
class Permit:
    """The answer to a request: sent after `wait` seconds under this number, or not.

    number: 0 for a request that is to be tried again after `wait`. spent: the part of the budget that is spent; then
    it is not to be sent.
    """

    wait: float = 0.0
    number: int = 0
    spent: str = ""


@dataclass
class Used:
    """What one model was asked.

    calls: requests sent, retries among them. retries: requests sent again. recalled: requests that the judge's cache
    answered. prompt_tokens, completion_tokens: the sums of what replies say. unsaid: calls whose tokens are not known,
    because the reply did not say, or there was none.
    """

    calls: int = 0
    retries: int = 0
    recalled: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unsaid: int = 0


@dataclass
class Account:
    """What was asked, by model, under limits and a budget. prices: by model; `*` for all others.

    stopped: the requests that were not sent, by the part of the budget that was spent.
    """

    limits: Limits = Limits()
    budget: Budget = Budget()
    prices: Mapping[str, Price] = field(default_factory=dict)
    used: dict[str, Used] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)
    _begun: float | None = None
    _free: float = float("-inf")  # when the next request may be sent
    _number: int = 0
    _assumed: list[float] = field(default_factory=lambda: [0.0, 0.0])  # tokens and cost of calls that did not say
    # tokens and cost of requests under way, by number, and when they are given up; only if the budget has these
    _under_way: dict[int, list[float]] = field(default_factory=dict)

    @property
    def counts_tokens(self) -> bool:
        return self.budget.tokens is not None or self.budget.cost is not None

    def price(self, model: str) -> Price | None:
        return self.prices.get(model) or self.prices.get("*")

    def cost_of(self, model: str) -> float | None:
        """The cost of the tokens that replies of a model named; None without a price, or if none did."""
        price, used = self.price(model), self.used.get(model, Used())
        if price is None or (used.unsaid and not used.prompt_tokens):
            return None
        return price.of(used.prompt_tokens, used.completion_tokens)

    @property
    def cost(self) -> float:
        """The cost of all tokens that replies named, at the prices that are known."""
        return sum(self.cost_of(model) or 0.0 for model in self.used)

    def permit(self, request: Request, now: float) -> Permit:
        """Whether and when a request may be sent. With a number it counts as sent."""
        self._begun = begun = now if self._begun is None else self._begun
        budget, most = self.budget, self._most(request)
        spent = self._spent(request, now - begun)
        if spent:
            return self._stop(spent)
        if self.counts_tokens:
            self._give_up(now)
            over = self._over(most)
            if over and self._under_way:
                return Permit(SOON)
            if over:
                return self._stop(over)
        send = max(self._free, now)
        if budget.minutes is not None and send - begun >= budget.minutes * 60:
            return self._stop("minutes")
        limits, tokens = self.limits, request.prompt + request.completion
        takes = (
            60 / limits.requests if limits.requests else 0.0,
            60 * tokens / limits.tokens if limits.tokens else 0.0,
        )
        self._free = send + max(takes)
        self._number += 1
        if self.counts_tokens:
            self._under_way[self._number] = [*most, send + LATEST]
        used = self.used.setdefault(request.model, Used())
        used.calls += 1
        used.retries += request.again
        return Permit(send - now, self._number)

    def settle(self, number: int, model: str, said: tuple[int, int] | None) -> None:
        """The end of a request. said: tokens that it read and wrote; None if that is not known."""
        used = self.used.setdefault(model, Used())
        held = self._under_way.pop(number, None)
        if said is not None:
            used.prompt_tokens += said[0]
            used.completion_tokens += said[1]
            return
        used.unsaid += 1
        if held is not None:
            self._assume(held)

    def recall(self, model: str, requests: int) -> None:
        """Count requests that the judge's cache answered."""
        self.used.setdefault(model, Used()).recalled += requests

    def take(self, other: Account) -> None:
        """Continue as another account, whose limits, budget and prices are the same."""
        self.__dict__.update(other.__dict__)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Account:
        kept = json.loads(text)
        kept["limits"], kept["budget"] = Limits(**kept["limits"]), Budget(**kept["budget"])
        kept["prices"] = {model: Price(**price) for model, price in kept["prices"].items()}
        kept["used"] = {model: Used(**used) for model, used in kept["used"].items()}
        kept["_under_way"] = {int(number): held for number, held in kept["_under_way"].items()}
        return cls(**{one.name: kept[one.name] for one in fields(cls)})

    def _most(self, request: Request) -> tuple[float, float]:
        """The tokens and the cost that a request may have, about."""
        price = self.price(request.model)
        cost = float("inf") if price is None else price.of(request.prompt, request.completion)
        return request.prompt + request.completion, cost

    def _spent(self, request: Request, seconds: float) -> str:
        budget = self.budget
        if budget.calls is not None and sum(used.calls for used in self.used.values()) + 1 > budget.calls:
            return "calls"
        if request.again and budget.retries is not None:
            retries = sum(used.retries for used in self.used.values())
            if retries + 1 > budget.retries:
                return "retries"
        return "minutes" if budget.minutes is not None and seconds >= budget.minutes * 60 else ""

    def _over(self, most: tuple[float, float]) -> str:
        """The part of the budget into which a request does not fit, given those under way."""
        tokens = sum(used.prompt_tokens + used.completion_tokens for used in self.used.values())
        held = [self._assumed, *self._under_way.values(), most]
        if self.budget.tokens is not None and tokens + sum(one[0] for one in held) > self.budget.tokens:
            return "tokens"
        if self.budget.cost is not None and self.cost + sum(one[1] for one in held) > self.budget.cost:
            return "cost"
        return ""

    def _give_up(self, now: float) -> None:
        for number in [number for number, held in self._under_way.items() if held[2] < now]:
            self._assume(self._under_way.pop(number))

    def _assume(self, held: list[float]) -> None:
        self._assumed = [self._assumed[0] + held[0], self._assumed[1] + held[1]]

    def _stop(self, spent: str) -> Permit:
        self.stopped[spent] = self.stopped.get(spent, 0) + 1
        return Permit(spent=spent)


class Shared(Protocol):
    """An account that several processes, or threads, use at once."""

    async def permit(self, request: Request) -> Permit: ...
    async def settle(self, number: int, model: str, said: tuple[int, int] | None) -> None: ...
    def recall(self, model: str, requests: int) -> None: ...


class Here:
    """An account of this process."""

    def __init__(self, account: Account):
        self.account, self._lock = account, threading.Lock()

    async def permit(self, request: Request) -> Permit:
        with self._lock:
            return self.account.permit(request, time.monotonic())

    async def settle(self, number: int, model: str, said: tuple[int, int] | None) -> None:
        with self._lock:
            self.account.settle(number, model, said)

    def recall(self, model: str, requests: int) -> None:
        with self._lock:
            self.account.recall(model, requests)


_shared: list[Shared] = [Here(Account())]


def shared() -> Shared:
    """The account of what this process asks."""
    return _shared[0]


def share(account: Shared) -> None:
    """Have all judges of this process use an account."""
    _shared[:] = [account]


@contextmanager
def sharing(account: Shared) -> Iterator[None]:
    """Have all judges of this process use an account, within this context."""
    before = shared()
    share(account)
    try:
        yield
    finally:
        share(before)


async def permitted(account: Shared, request: Request) -> Permit:
    """The permit of a request, when it may be sent; or the part of the budget that is spent."""
    while True:
        permit = await account.permit(request)
        if permit.wait:
            await asyncio.sleep(permit.wait)
        if permit.number or permit.spent:
            return permit


def estimated(content: bytes, body: Mapping[str, Any]) -> tuple[int, int | None]:
    """The tokens of a request, a quarter of its bytes, and the most that its answer may have; None for no end."""
    most = body.get("max_tokens") or body.get("max_completion_tokens")
    return len(content) // 4, max(int(most), 0) if isinstance(most, int | float) else None
