"""The rows of each group, and kernels applied to them."""

import torch

from rewardspec.emit.runtime.once import OnHost


class Layout:
    """The rows of each group: `blocks` of groups of equal size.

    blocks: (first row, number of groups, group size), in order of rows.
    order: [N] the rows sorted by group, or None if they already are.
    shape: of a tensor with a value for every row. reduced: of one with a value for every group.
    """

    unread = None  # where values are not looked at: numbers that are, at the end, each with its condition

    def __init__(self, shape, blocks, reduced, order=None):
        self.shape, self.blocks, self.reduced, self.order = shape, blocks, reduced, order
        self.dense = len(blocks) == 1 and order is None
        self.rounding = None  # of sums that should be equal, relative to their largest summand

    def noting(self, unread):
        """This layout for another call."""
        found = object.__new__(Layout)
        found.__dict__.update(self.__dict__)
        found.unread = unread
        return found

    def split(self, x):
        """`x` as a list of [groups, size], one for each block."""
        if self.dense:
            shape = self.blocks[0][1:]
            return [x if x.shape == shape else x.reshape(shape)]
        x = x.reshape(-1) if self.order is None else x.reshape(-1)[self.order]
        return [x[start : start + count * size].view(count, size) for start, count, size in self.blocks]

    def reduce(self, kernel, x, mask=None, **options):
        """`kernel` applied to every group: [..., size] -> [..., 1]. Rows outside `mask` are ignored."""
        if not x.numel():  # an empty batch
            return x.new_zeros(self.reduced)
        parts = self._apply(kernel, x, mask, **options)
        return (parts[0] if self.dense else torch.cat([part.reshape(-1) for part in parts])).reshape(self.reduced)

    def map(self, kernel, x, mask=None, **options):
        """`kernel` applied to every group: [..., size] -> [..., size], in the shape and order of `x`."""
        if not x.numel():
            return x
        parts = self._apply(kernel, x, mask, **options)
        if self.dense:
            return parts[0].reshape(self.shape)
        return restored(torch.cat([part.reshape(-1) for part in parts]), self.order).reshape(self.shape)

    def masks(self, mask):
        """The mask of each block; None if every row takes part."""
        return [None] * len(self.blocks) if mask is None else self.split(mask)

    def _apply(self, kernel, x, mask, summands=None, **options):
        parts = []
        for i, (part, m) in enumerate(zip(self.split(x), self.masks(mask), strict=True)):
            if summands is not None:
                options["summands"] = lambda i=i: self.split(
                    torch.as_tensor(summands(), device=x.device).expand(x.shape)
                )[i]
                options["rounding"], options["unread"] = self.rounding, self.unread
            parts.append(kernel(part, m, **options))
        return parts

    def back(self, values):
        """A value for every group, repeated for each of its rows."""
        if not values.numel():
            return values.reshape(self.shape)
        if self.dense:
            return values.reshape(-1, 1).expand(self.blocks[0][1:]).reshape(self.shape)
        counts = torch.cat([torch.full((count,), size, device=values.device) for _, count, size in self.blocks])
        rows = sum(count * size for _, count, size in self.blocks)
        spread = values.reshape(-1).repeat_interleave(counts, output_size=rows)
        return restored(spread, self.order).reshape(self.shape)

    def by(self, labels):
        """This layout with every group divided by `labels`, one for each row; NaN is a label, too."""
        if self.unread is not None and labels.device.type != "cpu":
            raise OnHost
        own = self.back(torch.arange(sum(b[1] for b in self.blocks), device=labels.device)).reshape(-1)
        codes = torch.unique(labels.reshape(-1).nan_to_num(nan=float("-inf")), return_inverse=True)[1]
        layout = sorted_layout(own * (codes.max() + 1 if codes.numel() else 1) + codes, self.shape)
        layout.rounding = self.rounding
        return layout


def restored(x, order):
    """The inverse of `x[order]`; `x` where `order` is None."""
    if order is None:
        return x
    result = torch.empty_like(x)
    result[order] = x
    return result


def sorted_layout(ids, shape=None):
    """The layout of rows with integer group `ids` [N], in any order: sorted by (size, first appearance)."""
    n = ids.numel()
    present, index, counts = torch.unique(ids, return_inverse=True, return_counts=True)
    first = torch.full_like(present, n).scatter_reduce_(0, index, torch.arange(n, device=ids.device), "amin")
    ranked = torch.argsort(first)
    ranked = ranked[torch.argsort(counts[ranked], stable=True)]
    rank = torch.empty_like(ranked)
    rank[ranked] = torch.arange(len(ranked), device=ids.device)
    order = torch.argsort(rank[index], stable=True)
    repeats = {}
    for size in counts.tolist():
        repeats[size] = repeats.get(size, 0) + 1
    blocks, start = [], 0
    for size, count in sorted(repeats.items()):
        blocks.append((start, count, size))
        start += size * count
    layout = Layout((n,) if shape is None else shape, blocks, (len(ranked),), order)
    layout.first = first[ranked]
    return layout
