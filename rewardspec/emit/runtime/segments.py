"""Groups of any size, as segments of one tensor: statistics that add straight into their group."""

import math

import torch

from rewardspec.emit.runtime.layout import Layout, restored
from rewardspec.emit.runtime.statistics import largest, only, within


class Segments(Layout):
    """The rows of one tensor, [M], in groups of any size, empty ones included.

    count: how many groups. reduced: the shape of a tensor with a value for each group. And one of these two:
    counts: [P] rows in each group, where rows of a group are adjacent and groups in order ("runs").
    of: [M] the number of each row's group, in any order.

    The functions `segment_...` add into groups. Other kernels see groups of similar size together, padded to the
    longest of them; their mask leaves the padding out.
    """

    def __init__(self, rows, count, reduced, rounding, counts=None, of=None):
        self.shape, self.count, self.reduced, self.rounding = (rows,), count, reduced, rounding
        self.runs = counts is not None
        self.given = {"counts": counts} if self.runs else {"of": of}
        self.found = dict(self.given)

    def __getstate__(self):
        return {**self.__dict__, "found": dict(self.given)}

    def once(self, name, make):
        if name not in self.found:
            self.found[name] = make()
        return self.found[name]

    @property
    def of(self):
        """[M] the number of each row's group."""
        return self.once("of", lambda: torch.repeat_interleave(self.counts, output_size=self.shape[0]))

    @property
    def counts(self):
        """[P] rows in each group."""
        return self.once("counts", lambda: torch.bincount(self.of, minlength=self.count))

    def first(self, mask=None):
        """[P] the first row of each group, or the first inside the mask; 0 for a group without."""
        if self.runs and mask is None:
            return (self.counts.cumsum(0) - self.counts).masked_fill_(self.counts == 0, 0)
        rows = torch.arange(len(self.of), device=self.of.device)
        rows = rows if mask is None else rows.masked_fill(~mask, len(rows))
        least = torch.full((self.count,), len(rows), dtype=torch.long, device=rows.device)
        least.scatter_reduce_(0, self.of, rows, "amin")
        return least.masked_fill_(least == len(rows), 0)

    def some(self, x, mask=None):
        """[P] one value of each group, one inside the mask; 0 for a group without."""
        if self.runs and mask is None:
            return torch.where(self.counts > 0, x[self.first()], 0.0)
        of = self.of if mask is None else self.of.masked_fill(~mask, self.count)
        return x.new_zeros(self.count + 1).scatter_(0, of, x)[:-1]

    def add(self, x):
        """[P] the sum of each group, in float64."""
        if self.runs:
            return torch.segment_reduce(x.double().contiguous(), "sum", lengths=self.counts, unsafe=True)
        return torch.zeros(self.count, dtype=torch.float64, device=x.device).scatter_add_(0, self.of, x.double())

    def extreme(self, x, kind, start):
        """[P] the largest (`max`) or least (`min`) of each group; `start` for an empty one."""
        if self.runs:
            return torch.segment_reduce(x.contiguous(), kind, lengths=self.counts, unsafe=True, initial=start)
        found = torch.full((self.count,), start, dtype=x.dtype, device=x.device)
        return found.scatter_reduce_(0, self.of, x, f"a{kind}")

    def back(self, values):
        """A value for every group, repeated for each of its rows."""
        return values.reshape(-1).index_select(0, self.of)

    def by(self, labels):
        """These groups, each divided by `labels`, [M]; NaN is a label, too."""
        codes, kinds = _label_codes(labels.reshape(-1))
        of, count = torch.add(codes, self.of, alpha=kinds), self.count * kinds
        if count > 4 * len(of) + 1024:
            of = torch.unique(of, return_inverse=True)[1]
            count = int(of.max()) + 1 if len(of) else 0
        return Segments(len(of), count, (count,), self.rounding, of=of)

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
    low, high, part = torch.stack([*torch.aminmax(labels), labels.frac().abs().amax()]).tolist()
    if part == 0 and high - low <= max(2**10, len(labels)):
        return (labels - low).int(), int(high - low) + 1
    codes = torch.unique(labels.nan_to_num(nan=float("-inf")), return_inverse=True)[1]
    return codes, int(codes.max()) + 1


def _segment_deviations(layout, x, mask):
    """Deviations from the mean, [M], 0 outside the mask; the mean and the count, [P].

    Equal values deviate by exactly 0: float64 adds up equal float32 values exactly. From float64 values one of the
    group is subtracted before the mean is computed, as in `deviations`.
    """
    count = layout.counts.double() if mask is None else layout.add(mask)
    deviation, one = within(mask, x.double()), 0.0
    if x.dtype is torch.float64 and len(x):
        one = layout.some(x, mask)
        deviation = within(mask, layout.back(-one).add_(deviation))
    shift = layout.add(deviation) / count.clamp(min=1.0)
    return within(mask, layout.back(-shift).add_(deviation)), one + shift, count


def _segment_spread(layout, x, mask, ddof, summands=None, bound=None):
    """Deviations, [M], the standard deviation and which groups have spread, [P] (None: all). As `spread_of`."""
    deviation, _, count = _segment_deviations(layout, x, mask)
    norm = layout.add(deviation.square()).sqrt()
    terms = largest(x) if summands is None else torch.as_tensor(summands(), device=x.device).expand(x.shape)
    rounding = 4 * torch.finfo(x.dtype).eps if summands is None else layout.rounding
    most = terms.amax().double() if len(x) else 0.0
    proof = rounding * (count.sqrt() / 2)  # times the size of a group's terms: a larger norm proves spread
    sure = norm > proof * most
    every, doubted = torch.stack([sure.all(), (~sure & (norm != 0)).any()]).tolist()
    alive = None if every else norm != 0
    if doubted:
        if summands is None:
            size = torch.where(count > 0, terms[layout.first(mask)].double(), 0.0)
        else:
            size = layout.extreme(within(mask, terms.double()), "max", 0.0)
        alive = ~(norm <= proof * size)  # NaN counts as spread
        high = layout.extreme(deviation if mask is None else torch.where(mask, deviation, -math.inf), "max", -math.inf)
        low = layout.extreme(deviation if mask is None else torch.where(mask, deviation, math.inf), "min", math.inf)
        alive |= (norm > 0) & (high - low > rounding * size)
    return deviation, norm / (count - ddof).clamp(min=1.0).sqrt(), alive


def _some_settle(size, most):
    """Whether some sizes that are not 0 are within rounding of 0, beside terms as large as `most`.

    Can be True without any where not all is finite, or a size is a little larger.
    """
    kind = torch.finfo(size.dtype)
    scaled = size / (4.1 * kind.eps * most).clamp(min=kind.tiny)
    return bool(scaled.sub_(torch.nn.functional.hardshrink(scaled, 1.0)).amax() != 0)


def _segment_settle(layout, x, kind):
    """`x`, [M] in float64, as `kind`; those within rounding of their group's largest are exactly 0. As `settle`."""
    result = x.to(kind)
    size = result.abs()
    if not len(x) or not _some_settle(size, size.amax()):
        return result
    size = x.abs()
    least = layout.back(layout.extreme(size, "max", 0.0)) * (4 * torch.finfo(kind).eps)
    return result.masked_fill(size <= least, 0.0)


def segment_settled(items, x, statistics, others=()):
    """`x`, a sum, with exact 0 where its terms cancel to within rounding of the largest. As `settled`."""
    terms = [largest(items.batch.value(term)) for term in (*statistics, *others)]
    x = items.full(x)
    size = x.abs()
    if not len(x) or not _some_settle(size, torch.stack([term.amax() for term in terms]).amax()):
        return x
    own = largest(*(items.full(term) for term in terms[: len(statistics)]))
    most = largest(items.in_groups.back(items.in_groups.extreme(own, "max", 0.0)), *terms[len(statistics) :])
    return torch.where(size < 4 * torch.finfo(x.dtype).eps * most, 0.0, x)


def segment_mean(layout, x, mask=None):
    """[P] the mean of each group; NaN of none."""
    _, mean, count = _segment_deviations(layout, x, mask)
    return torch.where(count > 0, mean, float("nan")).to(x.dtype).reshape(layout.reduced)


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
    return _segment_settle(layout, deviation.mul_(layout.back(factor)), x.dtype)


def segment_center(layout, x, mask=None, **sums):
    """[M] x - mean; exactly 0 without spread and outside the mask."""
    deviation, _, alive = _segment_spread(layout, x, mask, 0, **sums)
    deviation = _segment_settle(layout, deviation, x.dtype)
    return deviation if alive is None else torch.where(layout.back(alive), deviation, 0.0)


def segment_min(layout, x, mask=None):
    """[P] the least of each group; NaN of none."""
    least = layout.extreme(x if mask is None else torch.where(mask, x, math.inf), "min", math.inf)
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
