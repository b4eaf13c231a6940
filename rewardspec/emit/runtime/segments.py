"""Groups of any size, as segments of one tensor: statistics that add straight into their group."""

import math

import torch

from rewardspec.emit.runtime.layout import Layout, restored
from rewardspec.emit.runtime.statistics import largest, only


class Segments(Layout):
    """The rows of one tensor, [M], in groups of any size, empty ones included.

    of: [M] the number of each row's group. count: how many groups. shape: of a tensor with a value for each group.
    counts: [P] rows in each group, where rows of a group are adjacent and groups in order.

    The functions `segment_...` add into groups. Other kernels see groups of similar size together, padded to the
    longest of them; their mask leaves the padding out.
    """

    def __init__(self, of, count, shape, rounding, counts=None):
        self.of, self.count, self.shape, self.reduced, self.rounding = of, count, of.shape, shape, rounding
        self.found, self.runs = {}, counts is not None
        if self.runs:
            start = counts.cumsum(0) - counts
            self.found = {"counts": counts, "first": start.masked_fill_(counts == 0, 0)}

    def __getstate__(self):
        return {**self.__dict__, "found": {}}

    def once(self, name, make):
        if name not in self.found:
            self.found[name] = make()
        return self.found[name]

    @property
    def counts(self):
        """[P] rows in each group."""
        return self.once("counts", lambda: torch.bincount(self.of, minlength=self.count))

    @property
    def first(self):
        """[P] the first row of each group; 0 for an empty one."""
        return self.once("first", lambda: self.earliest(torch.arange(len(self.of), device=self.of.device)))

    def earliest(self, rows):
        """[P] the least of some row numbers in each group; 0 for a group without."""
        least = torch.full((self.count,), len(self.of), dtype=torch.long, device=self.of.device)
        least.scatter_reduce_(0, self.of, rows, "amin")
        return least.masked_fill_(least == len(self.of), 0)

    def add(self, x):
        """[P] the sum of each group, in float64."""
        if self.runs:
            return torch.segment_reduce(x.double().contiguous(), "sum", lengths=self.counts, unsafe=True)
        return torch.zeros(self.count, dtype=torch.float64, device=x.device).index_add_(0, self.of, x.double())

    def extreme(self, x, kind, start):
        """[P] the largest (`amax`) or least (`amin`) of each group; `start` for an empty one."""
        found = torch.full((self.count,), start, dtype=x.dtype, device=x.device)
        return found.scatter_reduce_(0, self.of, x, kind)

    def back(self, values):
        """A value for every group, repeated for each of its rows."""
        return values.reshape(-1).index_select(0, self.of)

    def by(self, labels):
        codes, kinds = _label_codes(labels.reshape(-1))
        of, count = self.of * kinds + codes, self.count * kinds
        if count > 4 * len(of) + 1024:
            of = torch.unique(of, return_inverse=True)[1]
            count = int(of.max()) + 1 if len(of) else 0
        return Segments(of, count, (count,), self.rounding)

    # Other kernels

    def padded(self):
        """The rows of each block of groups, [groups, width]; which of these are rows; the place of each row in them."""
        counts, rows = self.counts, len(self.of)
        order = torch.argsort(self.of, stable=True)
        start = counts.cumsum(0) - counts
        place = torch.empty_like(order)
        place[order] = torch.arange(rows, device=order.device) - start[self.of[order]]
        longest = max(int(counts.max()), 1) if len(counts) else 1
        one = self.count * longest <= 2 * rows + 1024
        widths = torch.full_like(counts, longest) if one else _next_power(counts)
        blocks, members, at, before = [], [], torch.zeros_like(order), 0
        for width in [longest] if one else torch.unique(widths).tolist():
            some = (widths == width).nonzero().squeeze(-1)
            columns = torch.arange(width, device=order.device)
            index = (start[some, None] + columns).clamp(max=max(rows - 1, 0))
            blocks.append((order[index] if rows else index, columns < counts[some, None]))
            members.append(some)
            rank = torch.zeros_like(counts)
            rank[some] = torch.arange(len(some), device=order.device)
            at = torch.where(widths[self.of] == width, before + rank[self.of] * width + place, at)
            before += len(some) * width
        return blocks, torch.cat(members), at

    def split(self, x):
        """`x`, [M], as a list of [groups, width]; the padding holds other groups' values."""
        x = x.reshape(-1) if x.numel() else x.new_zeros(1)
        return [x[index] for index, _ in self.once("padded", self.padded)[0]]

    def masks(self, mask):
        insides = [inside for _, inside in self.once("padded", self.padded)[0]]
        return insides if mask is None else [a & b for a, b in zip(self.split(mask), insides, strict=True)]

    def reduce(self, kernel, x, mask=None, **options):
        parts = torch.cat([part.reshape(-1) for part in self._apply(kernel, x, mask, **options)])
        return restored(parts, self.once("padded", self.padded)[1]).reshape(self.reduced)

    def map(self, kernel, x, mask=None, **options):
        if not x.numel():
            return x
        parts = torch.cat([part.reshape(-1) for part in self._apply(kernel, x, mask, **options)])
        return parts[self.once("padded", self.padded)[2]]


def _next_power(counts):
    """The least power of 2 that is not below each count."""
    return torch.pow(2, torch.ceil(torch.log2(counts.clamp(min=1).double()))).long()


def _label_codes(labels):
    """A whole number for each label, and how many there are; NaN is a label, too."""
    if not len(labels):
        return labels.long(), 1
    low, high = (float(end) for end in torch.aminmax(labels))
    if 0 <= high - low <= max(2**10, len(labels)) and bool((labels == labels.floor()).all()):
        return (labels - low).long(), int(high - low) + 1
    codes = torch.unique(labels.nan_to_num(nan=float("-inf")), return_inverse=True)[1]
    return codes, int(codes.max()) + 1


def _segment_deviations(layout, x, mask):
    """Deviations from the mean, [M], the first value, mean - first and the count, [P]. As `deviations`."""
    wide = x.double()
    if mask is None:
        count, rows = layout.counts.double(), layout.first
    else:
        count = layout.add(mask)
        rows = layout.earliest(torch.arange(len(x), device=x.device).masked_fill(~mask, len(x)))
    first = torch.where(count > 0, wide[rows], 0.0) if len(wide) else count
    deviation = wide - layout.back(first)
    deviation = deviation if mask is None else torch.where(mask, deviation, 0.0)
    shift = layout.add(deviation) / count.clamp(min=1.0)
    deviation = deviation - layout.back(shift)
    return deviation if mask is None else torch.where(mask, deviation, 0.0), first, shift, count


def _segment_spread(layout, x, mask, ddof, summands=None, bound=None):
    """Deviations, [M], the standard deviation and which groups have spread, [P] (None: all). As `spread_of`."""
    deviation, first, _, count = _segment_deviations(layout, x, mask)
    norm = layout.add(deviation.square()).sqrt()
    rounding = 4 * torch.finfo(x.dtype).eps if summands is None else layout.rounding
    if summands is None:
        size = first.abs()
    else:
        terms = torch.as_tensor(summands(), device=x.device).double().expand(x.shape)
        size = layout.extreme(terms if mask is None else torch.where(mask, terms, 0.0), "amax", 0.0)
    alive = ~(norm <= rounding * (count.sqrt() / 2) * size)  # a large norm proves spread; NaN counts as spread
    if bool(alive.all()):
        alive = None
    else:
        unsure = (norm > 0) & ~alive
        if bool(unsure.any()):
            inside = deviation if mask is None else torch.where(mask, deviation, -math.inf)
            high = layout.extreme(inside, "amax", -math.inf)
            low = layout.extreme(inside if mask is None else torch.where(mask, deviation, math.inf), "amin", math.inf)
            alive = alive | (unsure & (high - low > rounding * size))
    return deviation, norm / (count - ddof).clamp(min=1.0).sqrt(), alive


def _segment_settle(layout, deviation, kind):
    """Deviations with those within rounding of their group's largest set to exactly 0. As `settle`."""
    least = 4 * torch.finfo(kind).eps
    size = deviation.abs()
    if not bool(((size > 0) & (size <= least * size.max())).any() if len(size) else False):
        return deviation
    return deviation.masked_fill(size <= layout.back(layout.extreme(size, "amax", 0.0)) * least, 0.0)


def segment_settled(items, x, statistics, others=()):
    """`x`, a sum, with exact 0 where its terms cancel to within rounding of the largest. As `settled`."""
    size = largest(*(items.full(term) for term in statistics))
    least = 4 * torch.finfo(x.dtype).eps
    largest_other = largest(*others) if others else 0.0
    most = largest(size, largest_other)
    near = x.abs() < least * most.max() if len(x) else x > x
    if not bool((near & (x != 0)).any()):
        return x
    peak = items.in_groups.back(items.in_groups.extreme(size, "amax", 0.0))
    return torch.where(x.abs() < least * largest(peak, largest_other), 0.0, x)


def segment_mean(layout, x, mask=None):
    """[P] the mean of each group; NaN of none."""
    _, first, shift, count = _segment_deviations(layout, x, mask)
    return torch.where(count > 0, first + shift, float("nan")).to(x.dtype).reshape(layout.reduced)


def segment_sum(layout, x, mask=None):
    """[P] the sum of each group; 0 of none."""
    return layout.add(x if mask is None else torch.where(mask, x, 0.0)).to(x.dtype).reshape(layout.reduced)


def segment_count(layout, x, mask=None):
    """[P] how many rows of each group are in the mask."""
    return (layout.counts if mask is None else layout.add(mask)).to(x.dtype).reshape(layout.reduced)


def segment_std(layout, x, mask=None, ddof=1, **sums):
    """[P] the standard deviation; 0 for fewer than two values."""
    _, std, alive = _segment_spread(layout, x, mask, ddof, **sums)
    return only(alive, std).to(x.dtype).reshape(layout.reduced)


def segment_var(layout, x, mask=None, ddof=1, **sums):
    """[P] the variance; 0 for fewer than two values."""
    _, std, alive = _segment_spread(layout, x, mask, ddof, **sums)
    return only(alive, std.square()).to(x.dtype).reshape(layout.reduced)


def segment_zscore(layout, x, mask=None, eps=0.0, ddof=1, **sums):
    """[M] (x - mean) / (std + eps); exactly 0 without spread and outside the mask."""
    deviation, std, alive = _segment_spread(layout, x, mask, ddof, **sums)
    factor = only(alive, (std + eps).clamp_(min=1e-300).reciprocal_())
    return (_segment_settle(layout, deviation, x.dtype) * layout.back(factor)).to(x.dtype)


def segment_center(layout, x, mask=None, **sums):
    """[M] x - mean; exactly 0 without spread and outside the mask."""
    deviation, _, alive = _segment_spread(layout, x, mask, 0, **sums)
    deviation = _segment_settle(layout, deviation, x.dtype)
    return (deviation if alive is None else torch.where(layout.back(alive), deviation, 0.0)).to(x.dtype)


def segment_min(layout, x, mask=None):
    """[P] the least of each group; NaN of none."""
    least = layout.extreme(x if mask is None else torch.where(mask, x, math.inf), "amin", math.inf)
    count = segment_count(layout, x, mask).reshape(-1)
    return torch.where(count > 0, least, float("nan")).reshape(layout.reduced)


def segment_max(layout, x, mask=None):
    """[P] the largest of each group; NaN of none."""
    return -segment_min(layout, -x, mask)


def segment_any(layout, x, mask=None):
    """[P] whether a condition holds anywhere in each group."""
    return (layout.add(x if mask is None else x & mask) > 0).reshape(layout.reduced)


def segment_all(layout, x, mask=None):
    """[P] whether a condition holds everywhere in each group."""
    return (layout.add(~x if mask is None else ~x & mask) == 0).reshape(layout.reduced)
