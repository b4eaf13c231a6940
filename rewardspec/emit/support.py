"""What emitted modules are built on: reading columns, laying out groups, statistics.

The emitter copies from this file what a spec needs, so a compiled module depends on torch alone.
Nothing here may import anything else.

Values of a batch have one of three shapes. One for every rollout: [P, G] where the groups are dense
(P groups of G rollouts that stand together), else [N], sorted by group. One for every group: [P, 1]
where dense, else [P]. One for the batch: [].
"""

import torch


class RolloutError(ValueError):
    """Rollouts that a spec cannot be computed on. The message names column, rollout and group."""


# Layout ------------------------------------------------------------------------------------------


class Layout:
    """Which rows stand together: `blocks` of equally large groups, rows in `order`.

    blocks: (first row, number of groups, group size), in order of rows.
    order: [N] rows sorted by group, or None where they lie so already.
    shape: of a value for every row. reduced: of a value for every group.
    """

    def __init__(self, shape, blocks, reduced, order=None):
        self.shape, self.blocks, self.reduced, self.order = shape, blocks, reduced, order
        self.dense = len(blocks) == 1 and order is None

    def split(self, x):
        """`x` as a list of [groups, size], one for each block."""
        if self.dense:
            return [x.reshape(self.blocks[0][1:])]
        x = x.reshape(-1) if self.order is None else x.reshape(-1)[self.order]
        return [x[start : start + count * size].view(count, size) for start, count, size in self.blocks]

    def reduce(self, kernel, x, mask=None, **options):
        """`kernel` of every group: [..., size] -> [..., 1]. Rows outside `mask`, or NaN, take no part."""
        parts = self._apply(kernel, x, mask, **options)
        return (parts[0] if self.dense else torch.cat([part.reshape(-1) for part in parts])).reshape(self.reduced)

    def map(self, kernel, x, mask=None, **options):
        """`kernel` of every group, [..., size] -> [..., size], with the shape and order of `x`."""
        parts = self._apply(kernel, x, mask, **options)
        if self.dense:
            return parts[0].reshape(self.shape)
        return self.restore(torch.cat([part.reshape(-1) for part in parts])).reshape(self.shape)

    def _apply(self, kernel, x, mask, summands=None, **options):
        masks = [None] * len(self.blocks) if mask is None else self.split(mask)
        parts = []
        for i, (part, m) in enumerate(zip(self.split(x), masks, strict=True)):
            if summands is not None:
                options["summands"] = lambda i=i, shape=x.shape: self.split(summands().expand(shape))[i]
            parts.append(kernel(part, m, **options))
        return parts

    def restore(self, x):
        """Rows in `order` back where they were."""
        if self.order is None:
            return x
        result = torch.empty_like(x)
        result[self.order] = x
        return result

    def back(self, values):
        """One value a group to one a row."""
        if self.dense:
            return values.reshape(-1, 1).expand(self.blocks[0][1:]).reshape(self.shape)
        counts = torch.cat([torch.full((count,), size, device=values.device) for _, count, size in self.blocks])
        return self.restore(values.reshape(-1).repeat_interleave(counts)).reshape(self.shape)

    def by(self, labels):
        """This layout with every group subdivided by `labels` (one a row; NaN is a label of its own)."""
        own = self.back(torch.arange(sum(b[1] for b in self.blocks), device=labels.device)).reshape(-1)
        codes = torch.unique(labels.reshape(-1).nan_to_num(nan=float("-inf")), return_inverse=True)[1]
        return sorted_layout(own * (codes.max() + 1 if codes.numel() else 1) + codes, self.shape)


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


# The batch ---------------------------------------------------------------------------------------


class Batch:
    """The rollouts of one call: columns read and checked, groups laid out.

    columns: names to tensors, arrays or lists of N values (None and NaN are missing).
    groups: one group size, or N ids of any hashable kind.
    needed: (name, options of `_read`) for each column.
    """

    def __init__(self, columns, groups, needed, step=None, total_steps=None):
        self.problems, self.checks = [], []
        given = {}
        for name, _ in needed:
            if name in columns:
                given[name] = _as_tensor(columns[name], name)
        self._refuse_missing(columns, [name for name, _ in needed])
        devices = {x.device for x in given.values() if torch.is_tensor(x)}
        devices |= {groups.device} if torch.is_tensor(groups) else set()
        self.device = next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
        kinds = {x.dtype for x in given.values() if torch.is_tensor(x)}
        self.dtype = torch.float64 if torch.float64 in kinds else torch.float32
        self.kinds = {name: x.dtype for name, x in given.items() if torch.is_tensor(x)}
        self.step, self.total_steps = step, total_steps
        self._lay_out(groups, {name: given[name] for name, options in needed if options.get("level") != "batch"})
        self.values = {name: self._read(name, given[name], **options) for name, options in needed}
        self._raise()

    def __getitem__(self, name):
        return self.values[name]

    def _refuse_missing(self, columns, names):
        absent = [name for name in names if name not in columns]
        if absent:
            found = ", ".join(f"`{name}`" for name in columns) or "none"
            raise RolloutError(
                "\n".join(f"column `{name}` is missing" for name in absent) + f"\nthe columns given are {found}"
            )

    def _lay_out(self, groups, columns):
        lengths = {name: len(x) for name, x in columns.items() if not torch.is_tensor(x) or x.dim()}
        if isinstance(groups, int) and not isinstance(groups, bool):
            n = max(lengths.values(), default=0)
            if groups < 1:
                raise RolloutError(f"a group size of {groups}: it is at least 1")
            if n % groups:
                raise RolloutError(f"{n} rollouts do not divide into groups of {groups}")
            ids, self.labels = None, None
        else:
            ids, self.labels = _group_ids(groups)
            n = len(ids)
        for name, length in lengths.items():
            if length != n:
                what = "rollouts" if ids is None else "group ids"
                raise RolloutError(f"column `{name}` has {length} values for {n} {what}")
        self.n = n
        size = groups if ids is None else _dense_size(ids)
        if size:
            count = n // size
            self.groups = Layout((count, size), [(0, count, size)], (count, 1))
            self.first = torch.arange(count, device=self.device) * size
            self.rollouts = Layout((count, size), [(0, 1, n)], ())
            self.order = None
            self.group_of = None
            self.group_size = torch.tensor(float(size), dtype=self.dtype, device=self.device)
        else:
            sorting = sorted_layout(ids.to(self.device))
            self.order, self.first = sorting.order, sorting.first
            count = len(self.first)
            self.groups = Layout((n,), sorting.blocks, (count,))
            self.rollouts = Layout((n,), [(0, 1, n)], ())
            sizes = torch.cat([torch.full((c,), size) for _, c, size in sorting.blocks]).to(self.device)
            self.group_of = torch.arange(count, device=self.device).repeat_interleave(sizes)
            self.group_size = sizes.to(self.dtype)
        self.among_groups = Layout(self.groups.reduced, [(0, 1, count)], ())
        self.batch_size = torch.tensor(float(n), dtype=self.dtype, device=self.device)

    # Reading columns

    def _read(self, name, x, values=None, low=None, high=None, symbols=None, level="rollout", missing=False, zero=False, clip=False):
        if symbols is not None:
            x = self._codes(name, x, symbols)
        elif not torch.is_tensor(x):
            wrong = next((v for v in x if isinstance(v, (str, bytes))), None)
            self.problems.append(f"column `{name}` holds {wrong!r}: it should hold numbers")
            return None
        if level == "batch" and x.dim() == 0:
            x = x.reshape(1)
        elif level == "batch" and len(x) != self.n:
            self.problems.append(f"column `{name}` has {len(x)} values: it is one for the batch")
            return None
        elif x.dim() != 1:
            self.problems.append(f"column `{name}` has shape {tuple(x.shape)}: one value for each rollout is wanted")
            return None
        x = x.to(self.device)
        if len(x) == self.n and self.order is not None:
            x = x[self.order]
        x = x.to(self.dtype)
        if zero:
            x = torch.nan_to_num(x, nan=0.0, posinf=float("inf"), neginf=float("-inf"))
        measured, bad = x, None
        if symbols is None and x.numel():
            x, bad = _snap(x, values, self.kinds[name], clip) if values is not None else _bound(x, low, high, clip)
            gone = None if missing else torch.isnan(x)
            bad = bad if gone is None else bad | gone if bad is not None else gone
        elif symbols is not None and not missing:
            bad = torch.isnan(x)
        if bad is not None:
            expected = _expected(values, low, high)
            self.checks.append((bad, lambda i: self._unwanted(name, measured, i, expected)))
        if level == "rollout":
            return x.reshape(self.groups.shape)
        return self._coarse(name, x, level)

    def _codes(self, name, x, symbols):
        """Names to their indices, None to NaN."""
        index = {symbol: float(i) for i, symbol in enumerate(symbols)}
        if torch.is_tensor(x):
            self.problems.append(f"column `{name}` holds numbers: it should hold names, {', '.join(symbols)}")
            return torch.zeros(len(x))
        codes = []
        for row, value in enumerate(x):
            if value is not None and value not in index and len(self.problems) < 20:
                self.problems.append(
                    f"column `{name}` is {value!r} at {self.where(row)}: it can be {', '.join(symbols)}"
                )
            codes.append(float("nan") if value is None else index.get(value, 0.0))
        return torch.tensor(codes, dtype=self.dtype)

    def _coarse(self, name, x, level):
        """A column that is the same within a group, or the batch, as one value for each."""
        if level == "batch":
            first = x[:1].reshape(()) if x.numel() else torch.full((), float("nan"), dtype=x.dtype)
            differs = (x != first) & ~(x.isnan() & first.isnan())
            if len(x) > 1:
                self.checks.append((differs, lambda i: f"column `{name}` differs at {self.where(i)}: it is one value for the batch"))
            return first
        rows = x.reshape(self.groups.shape)
        first = self.groups.reduce(lambda part, _: part[..., :1], rows)
        spread = self.spread(first)
        differs = (rows != spread) & ~(rows.isnan() & spread.isnan())
        self.checks.append((differs, lambda i: f"column `{name}` differs within its group at {self.where(i)}: it is one value a group"))
        return first

    def _unwanted(self, name, measured, row, expected):
        value = float(measured[row if len(measured) > 1 else 0])
        what = "missing" if value != value else f"{value:.6g}"
        return f"column `{name}` is {what} at {{where}}: it should be {expected}"

    # Shapes

    def spread(self, x):
        """A value for every group as one for every rollout of it."""
        return x if self.group_of is None else x[self.group_of]

    def full(self, x):
        """One value for every rollout, of a coarser one or a number."""
        return self.value(x).expand(self.groups.shape)

    def full_groups(self, x):
        return self.value(x).expand(self.groups.reduced)

    def value(self, x):
        return x if torch.is_tensor(x) else torch.tensor(x, dtype=self.dtype, device=self.device)

    def number(self, condition):
        return condition.to(self.dtype)

    def rounded(self, x, name):
        """A constant as the column it is compared with would hold it: float32 0.7 meets `>= 0.7`."""
        kind = self.kinds[name]
        return torch.tensor(x, dtype=kind).item() if kind.is_floating_point else x

    def given(self, name, value):
        """`step`, `total_steps` or `progress` of this call."""
        for needed in ("step", "total_steps") if name == "progress" else (name,):
            if getattr(self, needed) is None:
                raise RolloutError(f"the spec uses `{name}`: pass `{needed}=`")
        if name == "progress":
            if self.total_steps <= 0:
                raise RolloutError(f"total_steps is {self.total_steps}: it is at least 1")
            value = min(max(self.step / self.total_steps, 0.0), 1.0)
        return torch.tensor(float(value), dtype=torch.float64, device=self.device)

    def rows(self, x):
        """One value for every rollout, [N], in the caller's order."""
        x = (x if x.dim() and x.numel() == self.n else self.full(x)).reshape(-1)
        if self.order is None:
            return x
        result = torch.empty_like(x)
        result[self.order] = x
        return result

    # Errors

    def where(self, row):
        """Words for a row: its number in the caller's order, and its group."""
        at = row if self.order is None else int(self.order[row])
        return f"rollout {at} of group {self.label(at)!r}"

    def label(self, rollout):
        if self.labels is None:
            return rollout // self.groups.blocks[0][2]
        return self.labels(rollout)

    def refuse(self, bad, what):
        """Note that `bad` (a condition of any level) must hold nowhere."""
        bad = bad if torch.is_tensor(bad) else torch.tensor(bad)
        if bad.numel() != self.n or bad.dim() != len(self.groups.shape):
            bad = self.spread(bad).expand(self.groups.shape) if bad.dim() else bad.expand(self.groups.shape)
        self.checks.append((bad, lambda i: what + " at {where}"))

    def _raise(self):
        """One look at all that was noted (one synchronisation with the device), then the error, if any."""
        if self.checks and bool(torch.stack([bad.any() for bad, _ in self.checks]).any()):
            for bad, words in self.checks:
                rows = bad.reshape(-1).nonzero().reshape(-1)
                if len(rows):
                    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
                    row = int(rows[0])
                    self.problems.append(words(row).replace("{where}", self.where(row)) + more)
        self.checks = []
        if self.problems:
            raise RolloutError("\n".join(self.problems))

    def finish(self, advantage):
        """The advantage, [..] for every rollout, once it is known to be finite."""
        advantage = advantage if advantage.shape == self.groups.shape else self.full(advantage)
        missing, finite = torch.isnan(advantage), torch.isfinite(advantage)
        self.checks.append((missing, lambda i: "the advantage is missing, or 0/0, at {where}"))
        self.checks.append((~finite & ~missing, lambda i: "the advantage is infinite at {where}"))
        self._raise()
        return advantage


def _as_tensor(x, name):
    """A 1-D tensor of a column; a list as it is where it holds names."""
    if torch.is_tensor(x):
        return x.detach()
    if hasattr(x, "dtype") and hasattr(x, "tolist"):  # NumPy, without importing it
        if getattr(x.dtype, "kind", "") in "biuf":
            return torch.as_tensor(x)
        x = x.tolist()
    if isinstance(x, (bool, int, float)):
        return torch.tensor(float(x))
    x = list(x) if not isinstance(x, (str, bytes)) else [x]
    if any(isinstance(v, (str, bytes)) for v in x) or (x and all(v is None for v in x)):
        return x
    try:
        return torch.tensor([float("nan") if v is None else float(v) for v in x], dtype=torch.float32)
    except (TypeError, ValueError, OverflowError):
        wrong = next(v for v in x if not isinstance(v, (int, float, type(None))))
        raise RolloutError(f"column `{name}` holds {wrong!r}: it should hold one number for each rollout") from None


def _group_ids(groups):
    """Integer ids [N], and a function from a rollout to the label the caller gave its group."""
    if hasattr(groups, "dtype") and not torch.is_tensor(groups):
        groups = torch.as_tensor(groups) if groups.dtype.kind in "biu" else groups.tolist()
    if torch.is_tensor(groups):
        if groups.dim() != 1 or groups.is_floating_point():
            raise RolloutError("group ids are N whole numbers, or any N hashable values in a list")
        return groups.long(), lambda i: groups[i].item()
    try:
        groups = list(groups)
        known = {}
        ids = torch.tensor([known.setdefault(g, len(known)) for g in groups], dtype=torch.long)
    except TypeError:
        raise RolloutError("groups are one group size, or N hashable ids") from None
    return ids, lambda i: groups[i]


def _dense_size(ids):
    """The one size of groups whose rows stand together; 0 where the rows have to be sorted."""
    n = len(ids)
    if n == 0:
        return 1
    change = ids[1:] != ids[:-1]
    size = int(change.int().argmax()) + 1 if bool(change.any()) else n
    if n % size:
        return 0
    rows = ids.view(-1, size)
    together = bool((rows == rows[:, :1]).all())
    return size if together and len(torch.unique(rows[:, 0])) == n // size else 0


def _expected(values, low, high):
    if values is not None:
        return "one of " + ", ".join(f"{v:g}" for v in values)
    if low is None and high is None:
        return "a finite number"
    return f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"


def _snap(x, values, kind, clip):
    """`x` with each value as the declared one it is within rounding of, and where there is none such.

    The result is None in place of a mask where every value is exactly a declared one.
    """
    if len(values) <= 4 and all(value == int(value) for value in values):
        product = x - values[0]  # 0 at whole numbers declared, at least a fraction of one elsewhere
        for value in values[1:]:
            product *= x - value if value else x
        least, most = torch.aminmax(product)
        if bool((least == 0) & (most == 0)):
            return x, None
    declared = torch.tensor(values, dtype=torch.float64, device=x.device)
    middles = (declared[1:] + declared[:-1]) / 2
    wide = x.double()
    nearest = declared[torch.bucketize(wide, middles)]
    ulp = torch.finfo(kind).eps if kind.is_floating_point else 0.0
    off = (wide - nearest).abs() > 2 * max(ulp, torch.finfo(x.dtype).eps) * nearest.abs()
    missing = torch.isnan(x)
    bad = off & ~missing & (torch.isinf(x) if clip else True)
    return torch.where(missing, x, nearest.to(x.dtype)), bad


def _bound(x, low, high, clip):
    """`x` held to its range, and where it is outside (None where the extremes tell that it never is)."""
    if clip:
        return x.clamp(low, high), torch.isinf(x)
    least, most = torch.aminmax(x)
    if bool((least >= (low if low is not None else float("-inf"))) & (most <= (high if high is not None else float("inf")))):
        if bool(torch.isfinite(least) & torch.isfinite(most)):
            return x, None
    bad = torch.isinf(x)
    slack = 2 * torch.finfo(x.dtype).eps
    if low is not None:
        bad = bad | (x < low - slack * abs(low))
    if high is not None:
        bad = bad | (x > high + slack * abs(high))
    return x.clamp(low, high) if low is not None or high is not None else x, bad


# Statistics --------------------------------------------------------------------------------------
# Kernels take [groups, size] and give [groups, 1] or [groups, size]. They compute in float64 inside.


def deviations(x, mask):
    """x - mean (0 outside the mask), the first value, the mean less that, and the count.

    Starting from a value of the group makes a group of equal values 0 exactly, and costs no digits
    where there is a large offset.
    """
    if mask is None:
        first = x[..., :1].double()
        deviation = x.double() - first
        count = torch.tensor(float(x.shape[-1]), dtype=torch.float64, device=x.device)
        shift = deviation.mean(-1, keepdim=True) if x.shape[-1] else deviation.sum(-1, keepdim=True)
        return deviation - shift, first, shift, count
    chosen = x.gather(-1, mask.int().argmax(-1, keepdim=True)) if x.shape[-1] else x.sum(-1, keepdim=True)
    first = torch.where(mask.any(-1, keepdim=True), chosen, 0.0).double()
    deviation = torch.where(mask, x.double() - first, 0.0)
    count = mask.sum(-1, keepdim=True).double()
    shift = deviation.sum(-1, keepdim=True) / count.clamp(min=1.0)
    return torch.where(mask, deviation - shift, 0.0), first, shift, count


def spread_out(deviation, norm, count, dtype, size, bound=None):
    """Which groups have spread, [..., 1]: max - min beyond 4 units in the last place of `size`.

    norm: root of the summed squares of `deviation`. size: a function that gives the largest
    magnitude that the values of each group were summed from, [..., 1]. bound: a number that it
    surely does not exceed; where the norm alone tells, given that, nothing else is computed.
    """
    ulps = 4 * torch.finfo(dtype).eps
    limit = ulps * (size() if bound is None else bound)
    sure = norm > limit * count.sqrt() / 2  # the norm is at most sqrt(count) / 2 times max - min
    unsure = (norm > 0) & ~sure
    if bool(unsure.any()):
        extent = deviation.amax(-1, keepdim=True) - deviation.amin(-1, keepdim=True)
        sure = sure & ~unsure | unsure & (extent > ulps * size())
    return sure & (count > 1)


def spread_of(x, mask, ddof, summands=None, bound=None, centered=False):
    """Deviations from the mean, the standard deviation, and which groups have any."""
    if centered and mask is None:  # the mean is 0 by construction
        deviation, first = x, x[..., :1]
        count = torch.tensor(float(x.shape[-1]), dtype=torch.float64, device=x.device)
    else:
        deviation, first, _, count = deviations(x, mask)
        if centered:
            deviation = torch.where(mask, x.double(), 0.0)
    norm = torch.linalg.vector_norm(deviation, dim=-1, keepdim=True, dtype=torch.float64)
    if summands is None:  # nothing was summed: without spread, all are as large as the first
        size = first.double().abs
    else:
        size = lambda: summands().double().amax(-1, keepdim=True)  # noqa: E731
    alive = spread_out(deviation, norm, count, x.dtype, size, None if bound is None else bound * count.sqrt())
    return deviation, norm / (count - ddof).clamp(min=1.0).sqrt(), alive


def group_mean(x, mask):
    _, first, shift, count = deviations(x, mask)
    return torch.where(count > 0, first + shift, float("nan")).to(x.dtype)


def group_sum(x, mask):
    x = x.double() if mask is None else torch.where(mask, x.double(), 0.0)
    return x.sum(-1, keepdim=True)


def group_std(x, mask, ddof=1, summands=None, bound=None):
    """Fewer than two values have no spread, at any divisor."""
    _, std, alive = spread_of(x, mask, ddof, summands, bound)
    return torch.where(alive, std, 0.0).to(x.dtype)


def group_var(x, mask, ddof=1, summands=None, bound=None):
    _, std, alive = spread_of(x, mask, ddof, summands, bound)
    return torch.where(alive, std.square(), 0.0).to(x.dtype)


def group_zscore(x, mask, eps=0.0, ddof=1, centered=False, summands=None, bound=None):
    """(x - mean) / (std + eps); exactly 0 where there is no spread, and outside the mask.

    centered: the mean is 0 by construction and is not subtracted, so that zeros stay zeros.
    """
    deviation, std, alive = spread_of(x, mask, ddof, summands, bound, centered)
    factor = torch.where(alive, 1.0 / (std + eps).clamp(min=1e-300), 0.0)
    return (deviation * factor.to(deviation.dtype)).to(x.dtype)


def group_center(x, mask, summands=None, bound=None):
    """x - mean; exactly 0 where there is no spread, and outside the mask."""
    deviation, _, alive = spread_of(x, mask, 0, summands, bound)
    return torch.where(alive, deviation, 0.0).to(x.dtype)


def weighted_zscores(batch, values, weights, eps=0.0, ddof=1):
    """The sum of weight * z-score over the components, all of them in one pass over the groups.

    values: one for every rollout, of each component. weights: numbers, [] or one for every group.
    """
    shape = (-1,) + (1,) * (values[0].dim())
    weights = [batch.groups.reduce(lambda w, _: w[..., :1], batch.full(batch.spread(w))) if torch.is_tensor(w) and w.dim() else w for w in weights]
    parts = [batch.groups.split(x) for x in values]
    result, start = [], 0
    for block in zip(*parts, strict=True):
        count = block[0].shape[0]
        scaled = [w.reshape(-1, 1)[start : start + count].double() if torch.is_tensor(w) and w.dim() else w for w in weights]
        result.append(_weighted_block(block, scaled, eps, ddof))
        start += count
    if batch.groups.dense:
        return result[0]
    return torch.cat([part.reshape(-1) for part in result])


def _weighted_block(values, weights, eps, ddof):
    """`weighted_zscores` of [P, G] values; so many groups at a time that they stay in the cache."""
    groups, size = values[0].shape
    dtype, device = values[0].dtype, values[0].device
    result = torch.empty(groups, size, dtype=dtype, device=device)
    step = max(1, 2**19 // max(1, len(values) * size)) if device.type == "cpu" else max(1, groups)
    room = torch.empty(len(values), min(step, groups), size, dtype=torch.float64, device=device)
    for start in range(0, groups, step):
        stop = min(start + step, groups)
        x = room[:, : stop - start]
        for row, value in zip(x, values, strict=True):
            row.copy_(value[start:stop])
        first = x[..., :1].clone()
        x -= first
        x -= x.mean(-1, keepdim=True)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        count = torch.tensor(float(size), dtype=torch.float64, device=device)
        alive = spread_out(x, norm, count, dtype, first.abs)
        factor = norm.div_(max(size - ddof, 1) ** 0.5).add_(eps).reciprocal_()
        for row, weight in zip(factor, weights, strict=True):
            row *= weight[start:stop] if torch.is_tensor(weight) and weight.dim() else weight
        x *= torch.where(alive, factor, 0.0)
        result[start:stop] = x.sum(0)
    return result


def group_min(x, mask):
    if mask is None:
        return x.amin(-1, keepdim=True)
    least = torch.where(mask, x, float("inf")).amin(-1, keepdim=True)
    return torch.where(mask.any(-1, keepdim=True), least, float("nan"))


def group_max(x, mask):
    return -group_min(-x, mask)


def group_count(x, mask):
    if mask is None:
        return torch.full_like(x[..., :1], float(x.shape[-1]))
    return mask.sum(-1, keepdim=True).to(x.dtype)


def group_any(x, mask):
    return (x if mask is None else x & mask).any(-1, keepdim=True)


def group_all(x, mask):
    return (x if mask is None else x | ~mask).all(-1, keepdim=True)


def group_quantile(x, mask, q=0.5):
    """Linear between the two nearest values."""
    x = x if mask is None else torch.where(mask, x, float("inf"))
    ordered = x.double().sort(-1).values
    count = torch.full_like(ordered[..., :1], x.shape[-1]) if mask is None else mask.sum(-1, keepdim=True).double()
    at = q * (count - 1).clamp(min=0.0)
    low = at.floor()
    high = torch.minimum(low + 1, (count - 1).clamp(min=0.0))
    below, above = ordered.gather(-1, low.long()), ordered.gather(-1, high.long())
    return torch.where(count > 0, below + (above - below) * (at - low), float("nan")).to(x.dtype)


def group_rank(x, mask):
    """1 is least, ties share the lower; NaN outside the mask."""
    values = x if mask is None else torch.where(mask, x, float("inf"))
    ordered = values.sort(-1).values
    rank = torch.searchsorted(ordered.contiguous(), values.contiguous()).to(x.dtype) + 1
    return rank if mask is None else torch.where(mask, rank, float("nan"))


def largest(*summands):
    """The largest magnitude among the summands, value by value; a missing one counts as 0."""
    sizes = [torch.nan_to_num(s.abs(), nan=0.0) if torch.is_tensor(s) else abs(s) for s in summands]
    result = sizes[0]
    for size in sizes[1:]:
        if torch.is_tensor(result) and torch.is_tensor(size):
            result = torch.maximum(result, size)
        else:
            tensor, number = (result, size) if torch.is_tensor(result) else (size, result)
            result = tensor.clamp(min=number) if torch.is_tensor(tensor) else max(tensor, number)
    return result


def largest_zscores(batch, values, weights, eps=0.0, ddof=1):
    """The largest magnitude among the weighted z-scores, value by value."""
    return largest(*(weighted_zscores(batch, [x], [w], eps, ddof) for x, w in zip(values, weights, strict=True)))


def add_present(terms):
    """The sum of the terms that are not missing; missing where none is."""
    total, gone = 0.0, True
    for term in terms:
        missing = torch.isnan(term)
        total = total + torch.where(missing, 0.0, term)
        gone = missing & gone
    return torch.where(gone, float("nan"), total)


# The result --------------------------------------------------------------------------------------


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
        self.kept = torch.ones(len(batch.first), dtype=torch.bool, device=batch.device)
        if kept is not None:
            self.kept = self._in_order(batch.full_groups(kept))

    def _in_order(self, x):
        """A value for every group, in order of first appearance."""
        return x.reshape(-1)[torch.argsort(self._batch.first)]

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
