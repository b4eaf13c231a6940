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
    """

    def __init__(self, batch, advantage, rewards, weights, kept=None, shares=None):
        self._batch, self._advantage, self._shares = batch, batch.finish(advantage), shares
        self._rewards, self._weights = rewards, weights
        self.advantages = batch.rows(self._advantage)
        self._kept = kept

    def _in_order(self, x):
        """A value for every group, in order of first appearance."""
        x = x.reshape(-1)
        return x if self._batch.order is None else x[torch.argsort(self._batch.groups.first)]

    @property
    def kept(self):
        return self._in_order(self._batch.full_groups(self._batch.value(True if self._kept is None else self._kept)))

    @property
    def rewards(self):
        return {name: self._batch.rows(self._batch.value(x)) for name, x in self._rewards.items()}

    @property
    def weights(self):
        values = {name: self._batch.value(x) for name, x in self._weights.items()}
        return {name: self._in_order(x) if x.numel() > 1 else x.reshape(()) for name, x in values.items()}

    @property
    def shares(self):
        if callable(self._shares):
            self._shares = {name: self._batch.rows(x) for name, x in self._shares().items()}
        return self._shares

    def metrics(self):
        """Floats to log.

        rollouts_without_signal: share of rollouts with advantage 0. groups_without_signal: share of
        groups without spread in the advantage. advantage_spread: mean over groups of max - min.
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
        for name, x in self.rewards.items():
            found[f"reward/{name}"] = x.double().nanmean()
        for name, x in self.weights.items():
            found[f"weight/{name}"] = x.double().mean()
        for name, x in (self.shares or {}).items():
            found[f"share/{name}"] = x.double().abs().mean()
        return {name: float(x) for name, x in found.items()}
