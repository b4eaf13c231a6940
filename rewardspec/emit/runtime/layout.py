"""Which rows stand together."""

import torch


class Layout:
    """Which rows stand together: `blocks` of equally large groups, rows in `order`.

    blocks: (first row, number of groups, group size), in order of rows.
    order: [N] rows sorted by group, or None where they lie so already.
    shape: of a value for every row. reduced: of a value for every group.
    """

    def __init__(self, shape, blocks, reduced, order=None):
        self.shape, self.blocks, self.reduced, self.order = shape, blocks, reduced, order
        self.dense = len(blocks) == 1 and order is None
        self.rounding = None  # how far apart, relative to the largest summand, rounding can put equal sums

    def split(self, x):
        """`x` as a list of [groups, size], one for each block."""
        if self.dense:
            shape = self.blocks[0][1:]
            return [x if x.shape == shape else x.reshape(shape)]
        x = x.reshape(-1) if self.order is None else x.reshape(-1)[self.order]
        return [x[start : start + count * size].view(count, size) for start, count, size in self.blocks]

    def reduce(self, kernel, x, mask=None, **options):
        """`kernel` of every group: [..., size] -> [..., 1]. Rows outside `mask`, or NaN, take no part."""
        if not x.numel():  # a batch of nothing
            return x.new_zeros(self.reduced)
        parts = self._apply(kernel, x, mask, **options)
        return (parts[0] if self.dense else torch.cat([part.reshape(-1) for part in parts])).reshape(self.reduced)

    def map(self, kernel, x, mask=None, **options):
        """`kernel` of every group, [..., size] -> [..., size], with the shape and order of `x`."""
        if not x.numel():
            return x
        parts = self._apply(kernel, x, mask, **options)
        if self.dense:
            return parts[0].reshape(self.shape)
        return restored(torch.cat([part.reshape(-1) for part in parts]), self.order).reshape(self.shape)

    def _apply(self, kernel, x, mask, summands=None, **options):
        masks = [None] * len(self.blocks) if mask is None else self.split(mask)
        parts = []
        for i, (part, m) in enumerate(zip(self.split(x), masks, strict=True)):
            if summands is not None:
                options["summands"] = lambda i=i: self.split(
                    torch.as_tensor(summands(), device=x.device).expand(x.shape)
                )[i]
                options["rounding"] = self.rounding
            parts.append(kernel(part, m, **options))
        return parts

    def back(self, values):
        """One value a group to one a row."""
        if self.dense:
            return values.reshape(-1, 1).expand(self.blocks[0][1:]).reshape(self.shape)
        counts = torch.cat([torch.full((count,), size, device=values.device) for _, count, size in self.blocks])
        return restored(values.reshape(-1).repeat_interleave(counts), self.order).reshape(self.shape)

    def by(self, labels):
        """This layout with every group subdivided by `labels` (one a row; NaN is a label of its own)."""
        own = self.back(torch.arange(sum(b[1] for b in self.blocks), device=labels.device)).reshape(-1)
        codes = torch.unique(labels.reshape(-1).nan_to_num(nan=float("-inf")), return_inverse=True)[1]
        layout = sorted_layout(own * (codes.max() + 1 if codes.numel() else 1) + codes, self.shape)
        layout.rounding = self.rounding
        return layout


def restored(x, order):
    """Rows that stand in `order` (None: as they were) back where they were."""
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
    sizes, repeats = torch.unique_consecutive(counts[ranked], return_counts=True)
    blocks, start = [], 0
    for size, count in zip(sizes.tolist(), repeats.tolist(), strict=True):
        blocks.append((start, count, size))
        start += size * count
    layout = Layout((n,) if shape is None else shape, blocks, (len(ranked),), order)
    layout.first = first[ranked]
    return layout
