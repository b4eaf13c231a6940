"""The items of a list in all rollouts of a call, as one tensor, [M]; and functions of their order."""

import math

import torch

from rewardspec.emit.runtime.layout import restored
from rewardspec.emit.runtime.segments import Segments


class Items:
    """The items of one list: M of them, in the order of the batch's rollouts.

    lengths: [N], how many each rollout has, in the caller's order.
    """

    def __init__(self, batch, name, lengths):
        self.batch, self.name, self.given = batch, name, lengths
        self.lengths = lengths if batch.order is None else lengths[batch.order]
        self.n, self.longest = torch.stack([lengths.sum(), lengths.max()]).tolist() if len(lengths) else (0, 0)
        self.made = {}

    def __getstate__(self):
        return {**self.__dict__, "made": {}}

    def once(self, name, make):
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def _runs(self, name, counts, reduced):
        rounding = self.batch.groups.rounding
        return self.once(name, lambda: Segments(self.n, math.prod(reduced), reduced, rounding, counts()))

    @property
    def in_rollouts(self):
        """The items of each rollout."""
        return self._runs("rollouts", lambda: self.lengths, self.batch.groups.shape)

    @property
    def in_groups(self):
        """The items of all rollouts of each group."""
        return self._runs("groups", self._in_group, self.batch.groups.reduced)

    @property
    def in_batch(self):
        """All items."""
        return self._runs("batch", lambda: self.lengths.sum().reshape(1), ())

    def _in_group(self):
        if self.batch.group_of is None:
            return self.lengths.view(self.batch.groups.shape).sum(-1)
        none = torch.zeros_like(self.lengths[: self.batch.groups.reduced[0]])
        return none.index_add_(0, self.batch.group_of, self.lengths)

    @property
    def of(self):
        """[M] the rollout of each item."""
        return self.in_rollouts.of

    @property
    def start(self):
        """[N] the first item of each rollout; of one without items, where it would be."""
        return self.lengths.cumsum(0) - self.lengths

    @property
    def place(self):
        """[M] the place of each item in its list, from 0."""
        return self.once(
            "place", lambda: torch.arange(self.n, device=self.of.device) - self.in_rollouts.back(self.start)
        )

    @property
    def order(self):
        """[M] the items sorted by rollout and group, or None if they already are."""
        order, lengths = self.batch.order, self.given
        if order is None:
            return None
        return self.once("order", lambda: (lengths.cumsum(0) - lengths)[order][self.of] + self.place)

    @property
    def position(self):
        """[M] the place of each item in its list, from 1."""
        return (self.place + 1).to(self.batch.dtype)

    def spread(self, x):
        """The rollout's value for each of its items; a number as it is."""
        if not isinstance(x, torch.Tensor) or not x.dim():
            return x
        given, found = self.made.get("spread", (None, None))
        if x is not given:  # a sum and the check of its terms ask for the same
            found = self.batch.full(x).reshape(-1).index_select(0, self.of)
            self.made["spread"] = x, found
        return found

    def full(self, x):
        """A value for every item, from [M], one value or a number."""
        return self.batch.value(x).expand(self.n)

    def rows(self, x):
        """A value for every item, [M]: rollouts in the caller's order, their items in order."""
        return restored(self.full(x), self.order)

    def where(self, row):
        """An item in words."""
        return f"{self.name} {int(self.place[row])} of {self.batch.where(int(self.of[row]))}"

    def refuse(self, bad, what):
        """Add a check: `bad`, a condition on items, must be false everywhere."""
        bad = self.full(bad)
        self.batch.checks.append((bad, lambda i: f"{what} at {self.where(i)}"))

    def finish(self, advantage):
        """The advantage, [M]. Raises RolloutError where it is not finite."""
        advantage = self.full(advantage)
        if not self.batch._sums(advantage):
            checks = ((torch.isnan, "the advantage is missing or 0/0"), (torch.isinf, "the advantage is infinite"))
            for test, what in checks:
                self.refuse(test(advantage), what)
            self.batch._raise()
        return advantage


def list_before(items, x):
    """[M] the value of the item before; NaN for the first."""
    x = items.full(x)
    return x.roll(1).index_fill_(0, _firsts(items), float("nan")) if len(x) else x


def list_after(items, x):
    """[M] the value of the item after; NaN for the last."""
    x = items.full(x)
    return x.roll(-1).index_fill_(0, _firsts(items) - 1, float("nan")) if len(x) else x


def list_so_far(items, x):
    """[M] the sum of the present values up to each item and with it."""
    return _windows(items, x, 1, 1.0)


def list_returns(items, x, gamma=1.0):
    """[M] the sum of an item and all that follow, the k-th of these times gamma ** k; missing values count as 0."""
    return _windows(items, x, -1, gamma)


def _firsts(items):
    """[N] the first item of each list; of an empty list that of another. The items before them are the last ones."""
    return items.start % items.n


def _windows(items, x, way, gamma):
    """[M] sums over neighbours in one direction, discounted.

    Windows double: after each round a value covers twice as many items. `reaching` is what the neighbour at that
    distance is multiplied with, 0 where the list ends before it.
    """
    x = items.full(x)
    if not len(x):
        return x
    found = x.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    endless = found.abs().amax().item() > torch.finfo(torch.float64).max / items.n  # 0 times such a sum may be NaN
    found, reach = found.double(), 1
    ends = _firsts(items) if way > 0 else _firsts(items) - 1
    reaching = torch.full_like(found, gamma).index_fill_(0, ends, 0.0)
    while reach < items.longest and gamma:
        near, far = (found[:-reach], found[reach:])[::-way]
        factor = (reaching[:-1], reaching[1:])[way > 0]
        near.add_((factor * far).masked_fill_(factor == 0, 0.0) if endless else factor * far)
        reaching = reaching[:-reach] * reaching[reach:]
        reach *= 2
    return found.to(x.dtype)
