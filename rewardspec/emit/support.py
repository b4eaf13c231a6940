"""What emitted modules are built on: reading columns, laying out groups, statistics.

The emitter copies from this file what a spec needs, so a compiled module depends on torch alone.
Nothing here may import anything else.

Values of a batch have one of three shapes. One for every rollout: [P, G] where the groups are dense
(P groups of G rollouts that stand together), else [N], sorted by group. One for every group: [P, 1]
where dense, else [P]. One for the batch: [].
"""

import math

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
        self.rounding = None  # how far apart, relative to the largest summand, rounding can put equal sums

    def split(self, x):
        """`x` as a list of [groups, size], one for each block."""
        if self.dense:
            return [x.reshape(self.blocks[0][1:])]
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
        return self.restore(torch.cat([part.reshape(-1) for part in parts])).reshape(self.shape)

    def _apply(self, kernel, x, mask, summands=None, **options):
        masks = [None] * len(self.blocks) if mask is None else self.split(mask)
        parts = []
        for i, (part, m) in enumerate(zip(self.split(x), masks, strict=True)):
            if summands is not None:
                options["summands"] = lambda i=i, shape=x.shape: self.split(summands().expand(shape))[i]
                options["rounding"] = self.rounding
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
        layout = sorted_layout(own * (codes.max() + 1 if codes.numel() else 1) + codes, self.shape)
        layout.rounding = self.rounding
        return layout


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
        self.step, self.total_steps = step, total_steps
        absent = [name for name, _ in needed if name not in columns]
        if absent:
            found = ", ".join(f"`{name}`" for name in columns) or "none"
            lines = [f"column `{name}` is missing" for name in absent]
            raise RolloutError("\n".join([*lines, f"the columns given are {found}"]))
        given = {name: _as_tensor(columns[name], name) for name, _ in needed}
        self.kinds = {name: x.dtype for name, x in given.items() if isinstance(x, torch.Tensor)}
        self.dtype = torch.float64 if torch.float64 in self.kinds.values() else torch.float32
        devices = {x.device for x in (*given.values(), groups) if isinstance(x, torch.Tensor)}
        self.device = next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
        self._lay_out(groups, {name: given[name] for name, options in needed if options.get("level") != "batch"})
        self._read(given, needed)
        self._raise()

    def __getitem__(self, name):
        return self.values[name]

    def _lay_out(self, groups, columns):
        lengths = {name: len(x) for name, x in columns.items() if not isinstance(x, torch.Tensor) or x.dim()}
        if isinstance(groups, int) and not isinstance(groups, bool):
            n, ids, self.labels = max(lengths.values(), default=0), None, None
            if groups < 1:
                raise RolloutError(f"a group size of {groups}: it is at least 1")
        else:
            ids, self.labels = _group_ids(groups)
            n = len(ids)
        for name, length in lengths.items():
            if length != n:
                raise RolloutError(f"column `{name}` has {length} values for {n} {'rollouts' if ids is None else 'group ids'}")
        if ids is None and n % groups:
            raise RolloutError(f"{n} rollouts do not divide into groups of {groups}")
        self.n = n
        size = groups if ids is None else _dense_size(ids)
        if size:
            count = n // size
            self.groups = Layout((count, size), [(0, count, size)], (count, 1))
            self.order, self.group_of = None, None
        else:
            self.groups = sorted_layout(ids.to(self.device))
            self.order, count = self.groups.order, self.groups.reduced[0]
            self.groups.order = None  # columns are brought into order once, as they are read
            self.group_of = torch.arange(count, device=self.device).repeat_interleave(self.group_sizes())
        self.rollouts = Layout(self.groups.shape, [(0, 1, n)], ())
        self.among_groups = Layout(self.groups.reduced, [(0, 1, count)], ())
        coarsest = max((torch.finfo(kind).eps for kind in self.kinds.values() if kind.is_floating_point), default=0.0)
        for layout in (self.groups, self.rollouts, self.among_groups):
            layout.rounding = max(2 * coarsest, 4 * torch.finfo(self.dtype).eps)

    def group_sizes(self):
        """How many rollouts each group has."""
        sizes = [torch.full((count,), size, device=self.device) for _, count, size in self.groups.blocks]
        return torch.cat(sizes).reshape(self.groups.reduced) if sizes else torch.zeros(0, dtype=torch.long)

    # Reading columns

    def _read(self, given, needed):
        """`values`: every column checked, with the shape of its level.

        A look at the extremes of each column, all of them fetched together, tells whether it is as
        declared; only where one is not, its values are looked at one by one.
        """
        self.values = {}
        ready = [(name, self._prepared(name, given[name], options), options) for name, options in needed]
        alike = []  # short columns declared alike are looked at together
        for name, x, options in ready:
            if x is not None and x.numel():
                same = next((found for found in alike if found[0] == options and found[1][0].shape == x.shape), None)
                if same is None or x.numel() > 2**15:
                    alike.append((options, [x], [name]))
                else:
                    same[1].append(x)
                    same[2].append(name)
        probed = [_probe(torch.stack(xs) if len(xs) > 1 else xs[0], **options) for options, xs, _ in alike]
        extremes = torch.stack([end for ends, _ in probed for end in ends]).tolist() if probed else []
        suspect = set()
        for i, (_, (low, high)) in enumerate(probed):
            least, most = extremes[2 * i : 2 * i + 2]
            if not (low <= least and most <= high and math.isfinite(least) and math.isfinite(most)):
                suspect.update(alike[i][2])
        for name, x, options in ready:
            if x is None:
                continue
            if name in suspect:
                x = self._repaired(name, x, **options)
            level = options.get("level", "rollout")
            self.values[name] = x.reshape(self.groups.shape) if level == "rollout" else self._coarse(name, x, level)

    def _prepared(self, name, x, options):
        """A column in its order and type, missing values replaced where 0 stands for them."""
        if "symbols" in options:
            x = self._codes(name, x, options["symbols"])
        elif not isinstance(x, torch.Tensor):
            wrong = next((v for v in x if isinstance(v, (str, bytes))), None)
            self.problems.append(f"column `{name}` holds {wrong!r}: it should hold numbers")
            return None
        batch_level = options.get("level") == "batch"
        x = x.reshape(1) if batch_level and x.dim() == 0 else x
        if x.dim() != 1:
            self.problems.append(f"column `{name}` has shape {tuple(x.shape)}: one value for each rollout is wanted")
            return None
        if batch_level and len(x) not in (1, self.n):
            self.problems.append(f"column `{name}` has {len(x)} values: it is one for the batch")
            return None
        if x.dtype is not self.dtype or x.device != self.device:
            x = x.to(self.device, self.dtype)
        if self.order is not None and len(x) == self.n:
            x = x[self.order]
        if options.get("zero"):
            x = torch.where(torch.isnan(x), 0.0, x)
        return x

    def _repaired(self, name, x, values=None, low=None, high=None, symbols=None, missing=False, clip=False, **_):
        """A column that is not plainly as declared: snapped or clipped, what is wrong with it noted."""
        measured = x
        if symbols is not None:
            bad = torch.zeros_like(x, dtype=torch.bool)
        elif values is not None:
            x, bad = _snap(x, values, self.kinds[name], clip)
        else:
            x, bad = _bound(x, low, high, clip)
        if not missing:
            bad = bad | torch.isnan(x)
        expected = _expected(values, low, high, symbols)
        self.checks.append((bad, lambda i: self._unwanted(name, measured, i, expected)))
        return x

    def _codes(self, name, x, symbols):
        """Names to their indices, None to NaN."""
        index = {symbol: float(i) for i, symbol in enumerate(symbols)}
        if isinstance(x, torch.Tensor):
            self.problems.append(f"column `{name}` holds numbers: it should hold names, {', '.join(symbols)}")
            return torch.zeros(len(x) if x.dim() else 1)
        for row, value in enumerate(x):
            if value is not None and value not in index and len(self.problems) < 20:
                where = f"rollout {row} of group {self.label(row)!r}"
                self.problems.append(f"column `{name}` is {value!r} at {where}: it can be {', '.join(symbols)}")
        return torch.tensor([float("nan") if v is None else index.get(v, 0.0) for v in x])

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
        """A number of Python as a tensor."""
        if isinstance(x, torch.Tensor):
            return x
        return torch.tensor(x, dtype=torch.bool if isinstance(x, bool) else self.dtype, device=self.device)

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
        extremes = torch.stack(torch.aminmax(advantage)).tolist() if self.n else ()
        if self.checks or not all(map(math.isfinite, extremes)):
            self.checks.append((torch.isnan(advantage), lambda i: "the advantage is missing, or 0/0, at {where}"))
            self.checks.append((torch.isinf(advantage), lambda i: "the advantage is infinite at {where}"))
            self._raise()
        return advantage


def _as_tensor(x, name):
    """A 1-D tensor of a column; a list as it is where it holds names."""
    if isinstance(x, torch.Tensor):
        return x.detach() if x.requires_grad else x
    if hasattr(x, "dtype") and hasattr(x, "tolist"):  # NumPy, without importing it
        if getattr(x.dtype, "kind", "") in "biuf":
            return torch.as_tensor(x)
        x = x.tolist()
    if isinstance(x, (bool, int, float)):
        return torch.tensor(float(x))
    try:
        x = list(x) if not isinstance(x, (str, bytes)) else [x]
    except TypeError:
        raise RolloutError(f"column `{name}` is {x!r}: it should hold one value for each rollout") from None
    if any(isinstance(v, (str, bytes)) for v in x) or (x and all(v is None for v in x)):
        return x
    try:
        return torch.tensor([float("nan") if v is None else float(v) for v in x], dtype=torch.float32)
    except (TypeError, ValueError, OverflowError):
        wrong = next((v for v in x if not isinstance(v, (int, float, type(None)))), "a number too large for a float")
        raise RolloutError(f"column `{name}` holds {wrong!r}: it should hold one number for each rollout") from None


def _group_ids(groups):
    """Integer ids [N], and a function from a rollout to the label the caller gave its group."""
    if hasattr(groups, "dtype") and not isinstance(groups, torch.Tensor):
        groups = torch.as_tensor(groups) if groups.dtype.kind in "biu" else groups.tolist()
    if isinstance(groups, torch.Tensor):
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


def _expected(values, low, high, symbols=None):
    if symbols is not None:
        return "one of " + ", ".join(symbols)
    if values is not None:
        return "one of " + ", ".join(f"{v:g}" for v in values)
    if low is None and high is None:
        return "a finite number"
    return f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"


def _probe(x, values=None, low=None, high=None, **_):
    """Two numbers that lie within two limits if (few values: and only if) a column is as declared.

    The product of the distances to the declared values is 0 where a value is one of them.
    """
    if values is None:
        return torch.aminmax(x), (-math.inf if low is None else low, math.inf if high is None else high)
    if len(values) > 4 or any(b - a < 1e-3 for a, b in zip(values, values[1:], strict=False)):
        return (x.new_ones(()),) * 2, (0.0, 0.0)  # too many, or too near: look at each
    product = x - values[-1]
    for value in values[:-1]:
        product *= x - value if value else x
    return torch.aminmax(product), (0.0, 0.0)


def _snap(x, values, kind, clip):
    """`x` with each value as the declared one it is within rounding of, and where there is none such."""
    declared = torch.tensor(values, dtype=torch.float64, device=x.device)
    wide = x.double()
    nearest = declared[torch.bucketize(wide, (declared[1:] + declared[:-1]) / 2)]
    ulp = max(torch.finfo(kind).eps if kind.is_floating_point else 0.0, torch.finfo(x.dtype).eps)
    missing = torch.isnan(x)
    bad = torch.isinf(x) if clip else ((wide - nearest).abs() > 2 * ulp * nearest.abs()) & ~missing
    return torch.where(missing, x, nearest.to(x.dtype)), bad


def _bound(x, low, high, clip):
    """`x` held to its range, and where it is outside by more than rounding."""
    bad, slack = torch.isinf(x), 2 * torch.finfo(x.dtype).eps
    if not clip and low is not None:
        bad = bad | (x < low - slack * abs(low))
    if not clip and high is not None:
        bad = bad | (x > high + slack * abs(high))
    return x if low is None and high is None else x.clamp(low, high), bad


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
        shift = deviation.mean(-1, keepdim=True) if x.shape[-1] else deviation.sum(-1, keepdim=True)
        return deviation.sub_(shift), first, shift, x.shape[-1]
    chosen = x.gather(-1, mask.int().argmax(-1, keepdim=True)) if x.shape[-1] else x.sum(-1, keepdim=True)
    first = torch.where(mask.any(-1, keepdim=True), chosen, 0.0).double()
    deviation = torch.where(mask, x.double() - first, 0.0)
    count = mask.sum(-1, keepdim=True).double()
    shift = deviation.sum(-1, keepdim=True) / count.clamp(min=1.0)
    return torch.where(mask, deviation - shift, 0.0), first, shift, count


def spread_out(deviation, norm, count, rounding, size, bound=None):
    """Which groups have spread, [..., 1]: max - min of more than `rounding` times `size`.

    norm: root of the summed squares of `deviation`. size: a function that gives the largest
    magnitude that the values of each group were summed from, [..., 1]. bound: a number that it
    surely does not exceed. The norm is at most sqrt(count) / 2 times max - min, so it alone tells,
    but for groups whose spread is near rounding. None where every group has spread.
    """
    sure = ~(norm <= rounding * (count**0.5 / 2) * (size() if bound is None else bound))  # NaN goes on, to be reported
    if bool(sure.all()):
        return None
    unsure = (norm > 0) & ~sure
    if bool(unsure.any()):
        extent = deviation.amax(-1, keepdim=True) - deviation.amin(-1, keepdim=True)
        sure |= unsure & (extent > rounding * size())
    return sure


def spread_of(x, mask, ddof, summands=None, bound=None, centered=False, rounding=None):
    """Deviations from the mean, the standard deviation, and which groups have any (None: all).

    Without `summands` nothing was summed: values of a group without spread are as large as its first,
    and a few units in the last place of the type that is computed in are all that rounding can do.
    """
    if centered and mask is None:  # the mean is 0 by construction
        deviation, first, count = x, x[..., :1], x.shape[-1]
    else:
        deviation, first, _, count = deviations(x, mask)
        if centered:
            deviation = torch.where(mask, x.double(), 0.0)
    norm = torch.linalg.vector_norm(deviation, dim=-1, keepdim=True, dtype=torch.float64)
    if summands is None:
        size, rounding = first.double().abs, 4 * torch.finfo(x.dtype).eps
    else:
        size = lambda: summands().double().amax(-1, keepdim=True)  # noqa: E731
    alive = spread_out(deviation, norm, count, rounding, size, None if bound is None else bound * count**0.5)
    divisor = (count - ddof).clamp(min=1.0) if mask is not None else max(count - ddof, 1)
    return deviation, norm / divisor**0.5, alive


def only(alive, x):
    """`x` where a group has spread, 0 elsewhere."""
    return x if alive is None else torch.where(alive, x, 0.0)


def group_mean(x, mask):
    _, first, shift, count = deviations(x, mask)
    mean = first + shift
    return (mean if mask is None else torch.where(count > 0, mean, float("nan"))).to(x.dtype)


def group_sum(x, mask):
    wide = x.double() if mask is None else torch.where(mask, x.double(), 0.0)
    return wide.sum(-1, keepdim=True).to(x.dtype)


def group_std(x, mask, ddof=1, **sums):
    """Fewer than two values have no spread, at any divisor."""
    _, std, alive = spread_of(x, mask, ddof, **sums)
    return only(alive, std).to(x.dtype)


def group_var(x, mask, ddof=1, **sums):
    _, std, alive = spread_of(x, mask, ddof, **sums)
    return only(alive, std.square()).to(x.dtype)


def group_zscore(x, mask, eps=0.0, ddof=1, centered=False, bound=None, rounding=None, **sums):
    """(x - mean) / (std + eps); exactly 0 where there is no spread, and outside the mask.

    centered: the mean is 0 by construction and is not subtracted, so that zeros stay zeros.
    """
    if centered and mask is None and bound is not None and len(x) == 1:  # the batch, and surely spread out
        norm, count = float(torch.linalg.vector_norm(x, dtype=torch.float64)), x.shape[-1]
        if norm > rounding / 2 * bound * count:
            return x * (1.0 / (norm / max(count - ddof, 1) ** 0.5 + eps))
    deviation, std, alive = spread_of(x, mask, ddof, centered=centered, bound=bound, rounding=rounding, **sums)
    factor = only(alive, (std + eps).clamp_(min=1e-300).reciprocal_())
    return (deviation * factor).to(x.dtype)


def group_center(x, mask, **sums):
    """x - mean; exactly 0 where there is no spread, and outside the mask."""
    deviation, _, alive = spread_of(x, mask, 0, **sums)
    return only(alive, deviation).to(x.dtype)


def weighted_zscores(batch, values, weights, eps=0.0, ddof=1):
    """The sum of weight * z-score over the components, all of them in one pass over the groups.

    values: one for every rollout, of each component. weights: numbers, [] or one for every group.
    """
    weights = [w.reshape(-1, 1) if isinstance(w, torch.Tensor) and w.dim() else w for w in weights]
    blocks, start, parts = batch.groups.blocks, 0, []
    for block, (_, count, size) in zip(zip(*(batch.groups.split(x) for x in values), strict=True), blocks, strict=True):
        own = [w[start : start + count] if isinstance(w, torch.Tensor) and w.dim() else w for w in weights]
        parts.append(_weighted_block(block, own, count, size, eps, ddof))
        start += count
    whole = parts[0] if len(parts) == 1 else torch.cat([part.reshape(-1) for part in parts])
    return whole.reshape(batch.groups.shape)


def _weighted_block(values, weights, count, size, eps, ddof):
    """`weighted_zscores` of [P, G] values: on a CPU so many groups at a time that they stay in the cache."""
    step = 2**18 // max(1, len(values) * size)
    if count <= step or values[0].device.type != "cpu":
        return _weighted_slab(torch.stack(values).double(), weights, values[0].dtype, eps, ddof)
    result = torch.empty(count, size, dtype=values[0].dtype)
    room = torch.empty(len(values), step, size, dtype=torch.float64)
    for start in range(0, count, step):
        stop = min(start + step, count)
        x = room[:, : stop - start]
        for row, value in zip(x, values, strict=True):
            row.copy_(value[start:stop])
        own = [w[start:stop] if isinstance(w, torch.Tensor) and w.dim() else w for w in weights]
        result[start:stop] = _weighted_slab(x, own, result.dtype, eps, ddof)
    return result


def _weighted_slab(x, weights, dtype, eps, ddof):
    """`weighted_zscores` of x, [K, P, G] in float64, which is overwritten."""
    size = x.shape[-1]
    first = x[..., :1].clone()
    x -= first  # a group of equal values is 0 from here on, exactly
    x -= x.mean(-1, keepdim=True)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    rounding = 4 * torch.finfo(dtype).eps
    near = first.abs().mul_(rounding * size**0.5 / 2)
    if not torch.equal(norm > near, norm > 0):  # some spread may be rounding
        x *= only(spread_out(x, norm, size, rounding, first.abs), torch.ones_like(norm))
    factor = norm.div_(max(size - ddof, 1) ** 0.5).add_(eps or 1e-300).reciprocal_()
    for row, weight in zip(factor, weights, strict=True):
        if isinstance(weight, torch.Tensor) or weight != 1.0:
            row *= weight
    x *= factor
    return (x[0] if len(x) == 1 else x.sum(0)).to(dtype)


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
