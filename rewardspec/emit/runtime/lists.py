"""Lists inside the rollouts of a call: the items of all rollouts as one tensor, [M], and kernels on them."""

import math

import torch

from rewardspec.emit.runtime.batch import Batch
from rewardspec.emit.runtime.columns import RolloutError, _of_array, _plain
from rewardspec.emit.runtime.layout import Layout, restored
from rewardspec.emit.runtime.result import Result
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


class Items:
    """The items of one list: M of them, in the order of the batch's rollouts.

    lengths: [N], how many each rollout has, in the caller's order.
    """

    def __init__(self, batch, name, lengths):
        self.batch, self.name, self.given = batch, name, lengths
        order = batch.order
        self.lengths = lengths if order is None else lengths[order]
        self.n = int(lengths.sum())
        self.start = self.lengths.cumsum(0) - self.lengths
        rollouts = torch.arange(batch.n, device=lengths.device)
        self.of = rollouts.repeat_interleave(self.lengths, output_size=self.n)
        self.place = torch.arange(self.n, device=lengths.device) - self.start.index_select(0, self.of)
        self.order = None if order is None else (lengths.cumsum(0) - lengths)[order][self.of] + self.place
        self.made = {}

    def __getstate__(self):
        return {**self.__dict__, "made": {}}

    def _layout(self, name, of, counts, shape):
        if name not in self.made:
            self.made[name] = Segments(of(), math.prod(shape), shape, self.batch.groups.rounding, counts())
        return self.made[name]

    @property
    def in_rollouts(self):
        """The items of each rollout."""
        return self._layout("rollouts", lambda: self.of, lambda: self.lengths, self.batch.groups.shape)

    @property
    def in_groups(self):
        """The items of all rollouts of each group."""
        return self._layout("groups", self._group_of, self._in_group, self.batch.groups.reduced)

    @property
    def in_batch(self):
        """All items."""
        return self._layout("batch", lambda: torch.zeros_like(self.of), lambda: self.lengths.sum().reshape(1), ())

    def _group_of(self):
        group_of = self.batch.group_of
        return self.of // self.batch.groups.shape[-1] if group_of is None else group_of[self.of]

    def _in_group(self):
        if self.batch.group_of is None:
            return self.lengths.view(self.batch.groups.shape).sum(-1)
        return torch.zeros_like(self.lengths[: self.batch.groups.reduced[0]]).index_add_(
            0, self.batch.group_of, self.lengths
        )

    @property
    def left(self):
        """[M] how many items follow each item."""
        return self.lengths.index_select(0, self.of) - self.place - 1

    @property
    def longest(self):
        """The length of the longest list."""
        return int(self.lengths.max()) if len(self.lengths) else 0

    @property
    def position(self):
        """[M] the place of each item in its list, from 1."""
        return (self.place + 1).to(self.batch.dtype)

    def spread(self, x):
        """The rollout's value for each of its items; a number as it is."""
        if not isinstance(x, torch.Tensor) or not x.dim():
            return x
        return self.batch.full(x).reshape(-1).index_select(0, self.of)

    def full(self, x):
        """A value for every item, from [M], one value or a number."""
        return self.batch.value(x).expand(self.n)

    def rows(self, x):
        """A value for every item, [M]: rollouts in the caller's order, their items in order."""
        return restored(self.full(x), self.order)

    def where(self, row):
        """An item in words."""
        return f"{self.name} {int(self.place[row])} of {self.batch.where(int(self.of[row]))}"

    def refuse(self, bad, what):
        """Add a check: `bad`, a condition on items, must be false everywhere."""
        bad = self.full(bad)
        self.batch.checks.append((bad, lambda i: f"{what} at {self.where(i)}"))

    def finish(self, advantage):
        """The advantage, [M]. Raises RolloutError where it is not finite."""
        advantage = self.full(advantage)
        total = advantage.sum().item()
        self.batch._raise()
        if not math.isfinite(total):
            checks = ((torch.isnan, "the advantage is missing or 0/0"), (torch.isinf, "the advantage is infinite"))
            for test, what in checks:
                self.refuse(test(advantage), what)
            self.batch._raise()
        return advantage


class ListBatch(Batch):
    """A batch whose rollouts have lists. lists: the names of them. lengths: list to N lengths, for flat columns."""

    def __init__(self, columns, groups, needed, lists, lengths=None, step=None, total_steps=None, seed=0):
        self.lists, self.counts, self.reading = {}, {}, None
        problems = self._take_lengths(lists, lengths)
        flat = dict(columns) if hasattr(columns, "keys") else columns
        for name, options in needed:
            of = options.get("level")
            if of in lists and hasattr(columns, "keys") and name in columns:
                try:
                    flat[name], counts = _flat(columns[name], name, self.counts.get(of), "ids" in options)
                    self._agree(of, name, counts)
                except RolloutError as problem:
                    problems.append(str(problem))
        if problems:
            raise RolloutError("\n".join(problems))
        without = [of for of in lists if of not in self.counts]
        read = {name for name, _ in needed}
        if without and hasattr(columns, "keys") and read <= {*columns}:
            raise RolloutError(f"the spec reads no column of the list `{without[0]}`: pass `lengths=`")
        super().__init__(flat, groups, needed, step, total_steps, seed)

    def __getstate__(self):
        return {**super().__getstate__(), "reading": None}

    def _take_lengths(self, lists, lengths):
        """Keep the lengths that were passed; what is wrong with them."""
        if lengths is None:
            return []
        if not hasattr(lengths, "items"):
            return [
                f"lengths is {lengths!r:.80}: it should have N lengths for each list, such as {{{lists[0]!r}: ...}}"
            ]
        problems = []
        for name, given in lengths.items():
            if name not in lists:
                problems.append(f"lengths: the spec has no list {name!r:.80}, its lists are {', '.join(lists)}")
                continue
            try:
                counts = torch.as_tensor(given, device="cpu")
                right = counts.dim() == 1 and not counts.is_floating_point() and not bool((counts < 0).any())
            except (TypeError, ValueError, RuntimeError):
                right = False
            if right:
                self._agree(name, f"lengths of {name}", counts.long())
            else:
                problems.append(f"lengths[{name!r}] is {given!r:.80}: it should hold N whole numbers from 0")
        return problems

    def _agree(self, of, what, counts):
        """Keep the lengths of a list, which all of its columns share."""
        if of not in self.counts:
            self.counts[of] = (what, counts)
            return
        other, known = self.counts[of]
        if len(known) != len(counts):
            raise RolloutError(f"`{what}` has lists for {len(counts)} rollouts, and `{other}` for {len(known)}")
        wrong = (known != counts).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise RolloutError(
                f"`{what}` has {int(counts[row])} items at rollout {row}, and `{other}` has {int(known[row])}: "
                f"columns of the list `{of}` have equal lengths"
            )

    def _lay_out(self, groups, columns):
        super()._lay_out(groups, columns | {what: counts for what, counts in self.counts.values()})
        for name, (_, counts) in self.counts.items():
            self.lists[name] = Items(self, name, counts.to(self.device))

    def _prepared(self, name, x, options):
        self.reading = self.lists.get(options.get("level"))
        return self._located(super()._prepared, name, x, options)

    def _repaired(self, name, x, **options):
        self.reading = self.lists.get(options.get("level"))
        return self._located(super()._repaired, name, x, **options)

    def _located(self, read, *args, **options):
        """What `read` returns; the checks that it adds name items."""
        before, items = len(self.checks), self.reading
        found = read(*args, **options)
        if items is not None:
            self.checks[before:] = [
                (bad, lambda i, words=words: words(i).replace("{where}", items.where(i)))
                for bad, words in self.checks[before:]
            ]
        self.reading = None
        return found

    def _sorted(self, x, level):
        items = self.lists.get(level)
        if items is None:
            return super()._sorted(x, level)
        return x if items.order is None else x[items.order]

    def _coarse(self, name, x, level):
        return x if level in self.lists else super()._coarse(name, x, level)

    def where(self, row):
        # checks of items have named their item already
        return super().where(row) if row < self.n else ""

    def place(self, row):
        if self.reading is None:
            return super().place(row)
        lengths = self.reading.given
        rollout = int(torch.searchsorted(lengths.cumsum(0), row, right=True))
        item = row - int(lengths[:rollout].sum())
        return f"{self.reading.name} {item} of {super().place(rollout)}"


def _flat(x, name, lengths, ids=False):
    """The values of a column of lists, flat, and the length of each list.

    lengths: (whose, lengths) if they are known. Then `x` can be flat already. ids: a tuple can be one value.
    """
    if isinstance(x, torch.Tensor) and x.is_nested:
        x = x.unbind()
    if isinstance(x, torch.Tensor) and not _plain(x):
        raise RolloutError(f"column `{name}` is a meta, quantized or sparse tensor: it should be dense, with values")
    if hasattr(x, "dtype") and not isinstance(x, torch.Tensor):
        x = _of_array(x) if getattr(x.dtype, "kind", "") in "biuf" else x.tolist()
    if isinstance(x, torch.Tensor):
        if x.dim() == 2:
            return x.reshape(-1), torch.full((len(x),), x.shape[1], dtype=torch.long)
        if x.dim() != 1:
            raise RolloutError(f"column `{name}` has shape {tuple(x.shape)}: it should hold a list for each rollout")
        return _already_flat(x, name, lengths)
    try:
        rows = list(x) if not isinstance(x, (str, bytes)) else [x]
    except TypeError:
        raise RolloutError(f"column `{name}` is {x!r:.80}: it should hold a list for each rollout") from None
    listed = [row for row in rows if _is_list(row)]
    if ids and lengths is not None and all(isinstance(row, tuple) for row in listed):
        nested = len(listed) == len(rows) and [len(row) for row in rows] == lengths[1].tolist()
        listed = rows if nested else []
    if not listed and lengths is not None:
        return _already_flat(rows, name, lengths)
    for i, row in enumerate(rows):
        if not _is_list(row):
            raise RolloutError(f"column `{name}` is {row!r:.80} at rollout {i}: it should be a list")
    counts = torch.tensor([len(row) for row in rows], dtype=torch.long)
    if rows and all(isinstance(row, torch.Tensor) for row in rows):
        return torch.cat([row.reshape(len(row)) for row in rows]), counts
    return [value for row in rows for value in (row.tolist() if hasattr(row, "tolist") else row)], counts


def _is_list(x):
    return isinstance(x, (list, tuple)) or (hasattr(x, "tolist") and getattr(x, "ndim", 0) == 1)


def _already_flat(x, name, lengths):
    if lengths is None:
        raise RolloutError(f"column `{name}` is flat: pass its lengths, `lengths=`, or a list for each rollout")
    total = int(lengths[1].sum())
    if total != len(x):
        raise RolloutError(f"column `{name}` has {len(x)} values, and `{lengths[0]}` adds up to {total}")
    return x, lengths[1]


class ListResult(Result):
    """A `Result` of rollouts with lists.

    listed: what has a value for each item, with the list: {"advantage": turn, "reward/tool": turn}.
    """

    def __init__(self, batch, advantage, rewards, weights, listed, **options):
        self._listed = listed
        super().__init__(batch, advantage, rewards, weights, **options)

    def _frame(self, name):
        return self._listed.get(name, self._batch)

    @property
    def lengths(self):
        """List to [N], how many items each rollout has."""
        return {name: items.given for name, items in self._batch.lists.items()}

    def nested(self):
        """The advantages of each rollout's items, as a list of N lists."""
        items = self._listed.get("advantage")
        if items is None:
            return self.advantages.tolist()
        return [part.tolist() for part in self.advantages.split(items.given.tolist())]

    @property
    def refilled(self):
        """The row at each place of the refilled batch, and the advantages there; of items in order, if it has them."""
        items = self._listed.get("advantage")
        if items is None:
            return super().refilled
        rows, times = self._refilled_rows()
        parts = self.advantages.split(items.given.tolist())
        found = [parts[row] / n for row, n in zip(rows.tolist(), times, strict=True)]
        return rows, torch.cat(found) if found else self.advantages[:0]

    def metrics(self):
        batch, items = self._batch, self._listed.get("advantage")
        if not batch.n:
            return {}
        frame = batch if items is None else items
        size = self._advantage.abs() if items is None else items.in_rollouts.reduce(_largest, self._advantage.abs())
        layout = batch.groups if items is None else items.in_groups
        spread = layout.reduce(_range, self._advantage)
        found = {
            "rollouts_without_signal": 1 - torch.count_nonzero(size) / size.numel(),
            "groups_without_signal": 1 - torch.count_nonzero(spread) / spread.numel(),
            "advantage_spread": spread.mean(dtype=torch.float64),
            "groups_kept": self.kept.double().mean(),
        }
        if self._copies is not None:
            found["most_copies"] = self.copies.max().double()
        if self._summed() is not None:
            total = self._frame("total")
            values = total.full(self._summed()).double()
            found["total"] = values.nanmean()
            found["total_std"] = (
                (total.groups if total is batch else total.in_groups).reduce(_deviation, values).nanmean()
            )
        found |= {f"reward/{name}": x.double().nanmean() for name, x in self.rewards.items()}
        for name, x in self._weights.items():
            x = batch.value(x)
            found[f"weight/{name}"] = (batch.full_groups(x) if x.dim() else x).mean(dtype=torch.float64)
        if self.shares is not None:
            found |= {f"share/{name}": x.double().abs().mean() for name, x in self.shares.items()}
        values = torch.stack([value.double().to(frame.full(0.0).device) for value in found.values()]).tolist()
        return dict(zip(found, values, strict=True))


def _largest(x, mask):
    """[..., 1] the largest of values from 0; 0 of none."""
    return (x if mask is None else torch.where(mask, x, 0.0)).amax(-1, keepdim=True)


def _range(x, mask):
    """max - min of each group; exactly 0 where it is within rounding of the largest magnitude, and of none."""
    low = (x if mask is None else torch.where(mask, x, math.inf)).amin(-1, keepdim=True)
    high = (x if mask is None else torch.where(mask, x, -math.inf)).amax(-1, keepdim=True)
    extent = torch.where(high >= low, high - low, 0.0)
    return extent.masked_fill_(extent <= 4 * torch.finfo(x.dtype).eps * torch.maximum(high, -low), 0.0)


def _deviation(x, mask):
    """Standard deviation of the present values of each group; 0 for one value, NaN for none."""
    there = ~torch.isnan(x) if mask is None else ~torch.isnan(x) & mask
    count = there.sum(-1, keepdim=True)
    values = torch.where(there, x, 0.0)
    apart = torch.where(there, x - values.sum(-1, keepdim=True) / count.clamp(min=1), 0.0)
    std = (apart.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return torch.where(count > 0, std, float("nan"))


def list_before(items, x):
    """[M] the value of the item before; NaN for the first."""
    return torch.where(items.place > 0, x.roll(1), float("nan"))


def list_after(items, x):
    """[M] the value of the item after; NaN for the last."""
    return torch.where(items.left > 0, x.roll(-1), float("nan"))


def list_so_far(items, x):
    """[M] the sum of the present values up to each item and with it."""
    return _windows(x, items.place, items.longest, 1, 1.0)


def list_returns(items, x, gamma=1.0):
    """[M] the sum of an item and all that follow, the k-th of these times gamma ** k; missing values count as 0."""
    return _windows(x, items.left, items.longest, -1, gamma)


def _windows(x, there, longest, way, gamma):
    """[M] sums over neighbours in one direction, discounted. there: how many neighbours each item has.

    Windows double: after each round a value covers twice as many items.
    """
    found, reach = x.double(), 1
    found = torch.where(torch.isnan(found), 0.0, found)  # a tensor of its own, so it can be added to
    while reach < longest and gamma:
        near, far = (found[:-reach], found[reach:])[::-way]
        near.add_((gamma**reach * far).masked_fill_((there[:-reach], there[reach:])[::-way][0] < reach, 0.0))
        reach *= 2
    return found.to(x.dtype)
