"""The result of a compiled spec."""

import math

import torch


class Result:
    """The advantages of a batch, and what they were computed from.

    Rollouts (N) are in the caller's order, groups (P) in order of first appearance.

    advantages: [N], float32 or float64, on the device of the columns.
    rewards: name to [N], the shaped value of each component; NaN where it is missing.
    weights: name to [] or [P], the weight of each component at this step.
    shares: name to [N], each component's share of the advantage; None if the advantage is not a sum of shares.
        Computed on first access, from the tensors that were passed in.
    total: [N], the spec's `total`, by default the weighted sum of the rewards; NaN where all are missing.
        None if the spec is too large to add it. Computed on first access.
    kept: [P], whether the group is in the batch. Groups that are not kept have advantage 0.
    copies: [P], how often the group is in the batch: 0 or 1, or more with `refill`.
    """

    later = None  # what is read at the end, and what is done with the numbers

    def __init__(self, batch, advantage, rewards, weights, kept=None, copies=None, shares=None, total=None):
        self._batch, self._shares = batch, shares
        frame = self._frame("advantage")
        self._advantage = frame.finish(advantage)
        self._rewards, self._weights = rewards, weights
        self.advantages = batch.returned(frame.rows(self._advantage))
        self._kept, self._copies = kept, copies
        self._total = total

    def __getstate__(self):
        return {**self.__dict__, "_shares": self._share_rows(), "_total": self._summed()}

    def holds(self):
        """Whether all holds that the call relied on: one look at the device."""
        numbers, keep = self.later or (None, None)
        read = self._batch.fulfilled(numbers)
        if read is None:
            return False
        if keep is not None:
            keep(read)
            self.later = None
        self._batch.read()
        return True

    def sound(self):
        """Whether all holds that the call relied on, [], on the device: nobody has looked at it."""
        return torch.stack([holds(number) for number, holds in self._batch.found()]).all()

    def _frame(self, name):
        """What has a value of `advantage`, `total` or `reward/NAME`: the rollouts of the batch."""
        return self._batch

    @property
    def kept(self):
        return self._batch.returned(self._batch.in_order(True if self._kept is None else self._kept))

    @property
    def copies(self):
        if self._copies is None:
            return self.kept.long()
        return self._batch.returned(self._batch.in_order(self._copies).long())

    @property
    def refilled(self):
        """The rows of the batch after `keep` and `refill`, [M], and their advantages, [M]: for trainers that move rows.

        Groups are in order of first appearance. A group that is drawn again takes the place of one that is not kept;
        without `refill` such places are removed. The copies of a group share its advantage equally, so their
        gradients add up to that of one copy. With `refill` and groups of equal size M is N. With `refill`, if no
        group is kept, the batch is unchanged.
        """
        rows, times = self._refilled_rows()
        return rows, self.advantages[rows] / torch.tensor(times, device=rows.device)

    def _refilled_rows(self):
        """The row at each place of the refilled batch, and the copies that share its advantage."""
        copies, rows = self.copies, self._batch.rows_by_group()
        if self._copies is not None and not bool(copies.any()):
            copies = torch.ones_like(copies)
        times = copies.tolist()
        again = iter([p for p, n in enumerate(times) for _ in range(n - 1)])
        places = [p if n else next(again, None) for p, n in enumerate(times)]
        found = [p for p in places if p is not None]
        moved = [rows[p] for p in found] or [torch.zeros(0, dtype=torch.long, device=self.advantages.device)]
        return self._batch.returned(torch.cat(moved)), [times[p] for p in found for _ in range(len(rows[p]))]

    @property
    def rewards(self):
        return {name: self._batch.returned(x) for name, x in self._reward_rows().items()}

    def _reward_rows(self):
        return {name: self._frame(f"reward/{name}").rows(self._batch.value(x)) for name, x in self._rewards.items()}

    @property
    def weights(self):
        values = {name: self._batch.value(x) for name, x in self._weights.items()}
        values = {name: self._batch.in_order(x) if x.dim() else x for name, x in values.items()}
        return {name: self._batch.returned(x) for name, x in values.items()}

    @property
    def shares(self):
        found = self._share_rows()
        return None if found is None else {name: self._batch.returned(x) for name, x in found.items()}

    def _share_rows(self):
        if callable(self._shares):
            self._shares = {name: self._frame("advantage").rows(x) for name, x in self._shares().items()}
        return self._shares

    @property
    def total(self):
        found = self._summed()
        return None if found is None else self._batch.returned(self._frame("total").rows(found))

    def _summed(self):
        if callable(self._total):
            self._total = self._total()
        return self._total

    def metrics(self):
        """Name to float, for logs. All are fetched from the device together.

        rollouts_without_signal: fraction of rollouts with advantage 0.
        groups_without_signal: fraction of groups whose advantages are equal, to within rounding.
        advantage_spread: max - min of the advantages in a group, mean over groups.
        groups_kept: fraction of groups that are kept. most_copies: the largest of `copies`, with `refill`.
        total: mean of `total`. total_std: its standard deviation in a group, mean over groups.
        reward/NAME: mean of the shaped values that are present. weight/NAME: mean over groups.
        share/NAME: mean magnitude of the component's share of the advantage.
        """
        batch, advantage = self._batch, self._advantage
        if not batch.n:
            return {}
        spread = batch.groups.reduce(_extent, advantage)
        rows = {f"reward/{name}": x for name, x in self._reward_rows().items()}
        found = {"advantage_spread": spread.mean(dtype=torch.float64)}
        if self._summed() is not None:
            rows["total"] = self._frame("total").rows(self._summed())
            total = batch.full(self._summed()).double()
            found["total_std"] = batch.groups.reduce(_std, total).mean()
        if self._kept is not None:
            found["groups_kept"] = batch.full_groups(self._kept).double().mean()
        if self._copies is not None:
            found["most_copies"] = batch.full_groups(self._copies).max().double()
        weights = {f"weight/{name}": x for name, x in self._weights.items()}
        for name, x in weights.items():
            if isinstance(x, torch.Tensor):
                found[name] = (batch.full_groups(x) if x.dim() else x).mean(dtype=torch.float64)
        shares = {f"share/{name}": x for name, x in (self._share_rows() or {}).items()}
        live = torch.stack([torch.count_nonzero(advantage), torch.count_nonzero(spread)]).double()
        ends = [live, torch.stack(list(found.values()))]
        ends += [torch.stack(list(rows.values())).mean(1, dtype=torch.float64)] if rows else []
        ends += [torch.stack(list(shares.values())).abs_().mean(1, dtype=torch.float64)] if shares else []
        values = iter(torch.cat(ends).tolist())
        without = {
            name: (among.numel() - next(values)) / among.numel()
            for name, among in (("rollouts_without_signal", advantage), ("groups_without_signal", spread))
        }
        read = without | dict(zip([*found, *rows, *shares], values, strict=True))
        for name, x in rows.items():
            if math.isnan(read[name]):  # some are missing: the mean of the rest
                read[name] = float(x.double().nanmean())
        if math.isnan(read.get("total_std", 0.0)):
            read["total_std"] = float(batch.groups.reduce(_std_present, total).nanmean())
        known = {name: float(x) for name, x in weights.items() if not isinstance(x, torch.Tensor)}
        read = {"groups_kept": 1.0} | known | read
        order = ("rollouts_without_signal", "groups_without_signal", "advantage_spread", "groups_kept", "most_copies")
        order += ("total", "total_std", *rows, *weights, *shares)
        return {name: read[name] for name in dict.fromkeys(order) if name in read}


def _extent(x, _):
    """max - min of each group; exactly 0 where it is within rounding of the largest magnitude."""
    low, high = torch.aminmax(x, dim=-1, keepdim=True)
    extent = high - low
    return extent.masked_fill_(extent <= 4 * torch.finfo(x.dtype).eps * torch.maximum(high, -low), 0.0)


def _std(x, _):
    """Standard deviation of each group; 0 for a group of one, NaN where a value is missing."""
    return x.std(-1, keepdim=True) if x.shape[-1] > 1 else x - x


def _std_present(x, _):
    """Standard deviation of the present values; 0 for one value, NaN for none."""
    present = ~torch.isnan(x)
    count = present.sum(-1, keepdim=True)
    apart = x - x.nanmean(-1, keepdim=True)
    std = (torch.nansum(apart * apart, -1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return torch.where(count > 0, std, float("nan"))
