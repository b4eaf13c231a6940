"""What a compiled spec returns."""

import torch


class Result:
    """What a compiled spec gives for a batch. Rows are in the caller's order, groups in order of first appearance.

    advantages: [N], float32 or float64, on the device of the columns.
    rewards: each component's shaped value, [N], NaN where it was ignored.
    shares: each component's share of the advantage, [N]; None where the advantage is no sum of shares.
        Computed when first asked for, from the tensors that were passed in.
    weights: the weight of each component in force: [] for the batch, or [P].
    kept: [P] whether each group stands in the batch; groups outside have advantage 0.
    copies: [P] how often each group stands in the batch, where groups are drawn again; else 1 if kept, or 0.
    """

    def __init__(self, batch, advantage, rewards, weights, kept=None, copies=None, shares=None):
        self._batch, self._advantage, self._shares = batch, batch.finish(advantage), shares
        self._rewards, self._weights = rewards, weights
        self.advantages = batch.rows(self._advantage)
        self._kept, self._copies = kept, copies

    @property
    def kept(self):
        return self._batch.in_order(True if self._kept is None else self._kept)

    @property
    def copies(self):
        return self.kept.long() if self._copies is None else self._batch.in_order(self._copies).long()

    @property
    def refilled(self):
        """For trainers that move rows: which row stands in each place of the batch, [M], and its advantage there, [M].

        Groups come in order of first appearance, those drawn again in the places of those left out;
        without `refill` these places are gone. The advantage of a group is shared by its copies, so
        that together they pull as its one copy does in `advantages`. M is N where all groups are of
        one size. Where no group is kept and groups would be drawn, the batch stays as it is.
        """
        copies, rows = self.copies, self._batch.rows_by_group()
        if self._copies is not None and not bool(copies.any()):
            copies = torch.ones_like(copies)
        times = copies.tolist()
        again = iter([p for p, n in enumerate(times) for _ in range(n - 1)])
        places = [p if n else next(again, None) for p, n in enumerate(times)]
        found = [p for p in places if p is not None]
        if not found:
            return torch.zeros_like(self.advantages[:0], dtype=torch.long), self.advantages[:0]
        shared = [self.advantages[rows[p]] / times[p] for p in found]
        return torch.cat([rows[p] for p in found]), torch.cat(shared)

    @property
    def rewards(self):
        return {name: self._batch.rows(self._batch.value(x)) for name, x in self._rewards.items()}

    @property
    def weights(self):
        values = {name: self._batch.value(x) for name, x in self._weights.items()}
        return {name: self._batch.in_order(x) if x.dim() else x for name, x in values.items()}

    @property
    def shares(self):
        if callable(self._shares):
            self._shares = {name: self._batch.rows(x) for name, x in self._shares().items()}
        return self._shares

    def metrics(self):
        """Floats to log.

        rollouts_without_signal: share of rollouts with advantage 0. groups_without_signal: share of
        groups without spread in the advantage. advantage_spread: mean over groups of max - min.
        groups_kept: share of groups. most_copies: of one group, where groups are drawn again.
        reward/NAME: mean shaped value where present. weight/NAME: in force (mean over groups).
        share/NAME: mean magnitude of its share of the advantage.
        """
        batch, advantage = self._batch, self._advantage
        if not batch.n:
            return {}
        spread = batch.groups.reduce(lambda x, _: x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True), advantage)
        found = {
            "rollouts_without_signal": (advantage == 0).double().mean(),
            "groups_without_signal": (spread == 0).double().mean(),
            "advantage_spread": spread.double().mean(),
            "groups_kept": self.kept.double().mean(),
        }
        if self._copies is not None:
            found["most_copies"] = self.copies.max()
        for name, x in self.rewards.items():
            found[f"reward/{name}"] = x.double().nanmean()
        for name, x in self.weights.items():
            found[f"weight/{name}"] = x.double().mean()
        for name, x in (self.shares or {}).items():
            found[f"share/{name}"] = x.double().abs().mean()
        return {name: float(x) for name, x in found.items()}
