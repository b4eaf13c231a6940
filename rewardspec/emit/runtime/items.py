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
        order = batch.order
        self.lengths = lengths if order is None else lengths[order]
        self.n = int(lengths.sum())
        self.start = self.lengths.cumsum(0) - self.lengths
        rollouts = torch.arange(batch.n, device=lengths.device)
        self.of = rollouts.repeat_interleave(self.lengths, output_size=self.n)
        self.place = torch.arange(self.n, device=lengths.device) - self.start.index_select(0, self.of)
        self.order = None if order is None else (lengths.cumsum(0) - lengths)[order][self.of] + self.place
        self.made = {}

    def __getstate__(self):
        return {**self.__dict__, "made": {}}

    def _layout(self, name, of, counts, shape):
        if name not in self.made:
            self.made[name] = Segments(of(), math.prod(shape), shape, self.batch.groups.rounding, counts())
        return self.made[name]

    @property
    def in_rollouts(self):
        """The items of each rollout."""
        return self._layout("rollouts", lambda: self.of, lambda: self.lengths, self.batch.groups.shape)

    @property
    def in_groups(self):
        """The items of all rollouts of each group."""
        return self._layout("groups", self._group_of, self._in_group, self.batch.groups.reduced)

    @property
    def in_batch(self):
        """All items."""
        return self._layout("batch", lambda: torch.zeros_like(self.of), lambda: self.lengths.sum().reshape(1), ())

    def _group_of(self):
        group_of = self.batch.group_of
        return self.of // self.batch.groups.shape[-1] if group_of is None else group_of[self.of]

    def _in_group(self):
        if self.batch.group_of is None:
            return self.lengths.view(self.batch.groups.shape).sum(-1)
        return torch.zeros_like(self.lengths[: self.batch.groups.reduced[0]]).index_add_(
            0, self.batch.group_of, self.lengths
        )

    @property
    def left(self):
        """[M] how many items follow each item."""
        return self.lengths.index_select(0, self.of) - self.place - 1

    @property
    def longest(self):
        """The length of the longest list."""
        return int(self.lengths.max()) if len(self.lengths) else 0

    @property
    def position(self):
        """[M] the place of each item in its list, from 1."""
        return (self.place + 1).to(self.batch.dtype)

    def spread(self, x):
        """The rollout's value for each of its items; a number as it is."""
        if not isinstance(x, torch.Tensor) or not x.dim():
            return x
        return self.batch.full(x).reshape(-1).index_select(0, self.of)

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
        total = advantage.sum().item()
        self.batch._raise()
        if not math.isfinite(total):
            checks = ((torch.isnan, "the advantage is missing or 0/0"), (torch.isinf, "the advantage is infinite"))
            for test, what in checks:
                self.refuse(test(advantage), what)
            self.batch._raise()
        return advantage


def list_before(items, x):
    """[M] the value of the item before; NaN for the first."""
    return torch.where(items.place > 0, x.roll(1), float("nan"))


def list_after(items, x):
    """[M] the value of the item after; NaN for the last."""
    return torch.where(items.left > 0, x.roll(-1), float("nan"))


def list_so_far(items, x):
    """[M] the sum of the present values up to each item and with it."""
    return _windows(x, items.place, items.longest, 1, 1.0)


def list_returns(items, x, gamma=1.0):
    """[M] the sum of an item and all that follow, the k-th of these times gamma ** k; missing values count as 0."""
    return _windows(x, items.left, items.longest, -1, gamma)


def _windows(x, there, longest, way, gamma):
    """[M] sums over neighbours in one direction, discounted. there: how many neighbours each item has.

    Windows double: after each round a value covers twice as many items.
    """
    found, reach = x.double(), 1
    found = torch.where(torch.isnan(found), 0.0, found)  # a tensor of its own, so it can be added to
    while reach < longest and gamma:
        near, far = (found[:-reach], found[reach:])[::-way]
        near.add_((gamma**reach * far).masked_fill_((there[:-reach], there[reach:])[::-way][0] < reach, 0.0))
        reach *= 2
    return found.to(x.dtype)
