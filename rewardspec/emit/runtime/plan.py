"""What a call need not find out again, where columns of the same types and shapes were read before."""

import torch

from rewardspec.emit.runtime.columns import _filled, _probe


def _likeness(columns, groups, needed):
    """What the plan of a call depends on; None for a call that has to find out itself."""
    if type(groups) is not int:
        return None
    found = [groups]
    for name, _ in needed:
        x = columns[name]
        if not isinstance(x, torch.Tensor) or x.requires_grad:
            return None
        found += (type(x), x.dtype, x.shape, x.device, x.layout)
    return tuple(found)


class Plan:
    """How batches of one `_likeness` read their columns, without looking at values.

    probes: (options, names, condition) of columns of one declaration; each number of their probe fulfils the condition.
    """

    def __init__(self, batch, probes):
        self.probes, self.kinds, self.groups, self.binary = probes, batch.kinds, batch.groups, batch.binary
        names = ("n", "dtype", "device", "order", "group_of", "labels", "binary")
        self.known = {name: getattr(batch, name) for name in names}
        self.known["constants"] = {}  # what functions keep of shapes and options

    def read(self, batch, columns):
        """Read the columns into a batch."""
        batch.__dict__.update(self.known)
        batch.kinds = {**self.kinds}  # a state adds its own
        groups = batch.groups = self.groups.noting(batch.unread)
        for options, names, holds in self.probes:
            xs = [columns[name] for name in names]
            x = (torch.cat(xs) if len(xs) > 1 else xs[0]).reshape(len(xs), *groups.shape)
            if "zero" in options:
                x = torch.where(torch.isnan(x), 0.0, x)
            ends, _ = _probe(_filled(x, **options) if "missing" in options else x, **options)
            for end in ends:
                batch.unread.append((end, holds))
            parts = x.unbind()
            batch.values.update(zip(names, parts, strict=True))
            if names == self.binary:
                batch.stack = parts, x
