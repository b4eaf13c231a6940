"""Calls whose rollouts have lists: their columns, and their results."""

import math

import torch

from rewardspec.emit.runtime.batch import Batch
from rewardspec.emit.runtime.columns import RolloutError, _as_tensor, _is_numbers, _of_array, _plain
from rewardspec.emit.runtime.items import Items
from rewardspec.emit.runtime.once import Unread
from rewardspec.emit.runtime.result import Result


class ListBatch(Batch):
    """A batch whose rollouts have lists. lists: the names of them. lengths: list to N lengths, for flat columns."""

    def __init__(self, columns, groups, needed, lists, lengths=None, step=None, total_steps=None, seed=0):
        self.lists, self.counts, self.reading = {}, {}, None
        unread = isinstance(columns, Unread)
        if unread and lengths is not None:
            columns.on_host(*lengths.values())
        problems, refused = self._take_lengths(lists, lengths)
        flat = dict(columns) if hasattr(columns, "keys") else columns
        for name, options in needed:
            of = options.get("level")
            if of in lists and of not in refused and hasattr(columns, "keys") and name in columns:
                try:
                    flat[name], counts = _flat(columns[name], name, self.counts.get(of), "ids" in options)
                    self._agree(of, name, counts)
                except RolloutError as problem:
                    problems.append(str(problem))
        if problems:
            rest = [(name, own) for name, own in needed if own.get("level") not in lists and "ids" not in own]
            problems += _problems_of(rest, columns, groups)
            raise RolloutError("\n".join(problems))
        without = [of for of in lists if of not in self.counts]
        read = {name for name, _ in needed}
        if without and hasattr(columns, "keys") and read <= {*columns}:
            raise RolloutError(f"the spec reads no column of the list `{without[0]}`: pass `lengths=`")
        if unread:
            columns.on_host(*(flat[name] for name, _ in needed if name in flat))
            flat = Unread(flat, columns.home)
        super().__init__(flat, groups, needed, step, total_steps, seed)

    def __getstate__(self):
        return {**super().__getstate__(), "reading": None}

    def _take_lengths(self, lists, lengths):
        """Keep the lengths that were passed; what is wrong with them, and the lists that cannot be read before."""
        if lengths is None:
            return [], ()
        if not hasattr(lengths, "items"):
            words = f"lengths is {lengths!r:.80}: it should have N lengths for each list, such as {{{lists[0]!r}: ...}}"
            return [words], lists
        problems, refused = [], []
        for name, given in lengths.items():
            if name not in lists:
                problems.append(f"lengths: the spec has no list {name!r:.80}, its lists are {', '.join(lists)}")
                refused = [*lists]
                continue
            try:
                counts = torch.as_tensor(given, device="cpu")
                right = counts.dim() == 1 and not counts.is_floating_point() and not bool((counts < 0).any())
                right = right and float(counts.double().sum()) < 2**53
            except (TypeError, ValueError, RuntimeError):
                right = False
            if right:
                self._agree(name, f"lengths of {name}", counts.long())
            else:
                problems.append(f"lengths[{name!r}] is {given!r:.80}: it should hold N whole numbers from 0")
                refused.append(name)
        return problems, refused

    def _agree(self, of, what, counts):
        """Keep the lengths of a list, which all of its columns share."""
        if of not in self.counts:
            self.counts[of] = (what, counts)
        other, known = self.counts[of]
        if known is counts:
            return
        if len(known) != len(counts):
            raise RolloutError(f"`{what}` has lists for {len(counts)} rollouts, and `{other}` for {len(known)}")
        wrong = (known != counts).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise RolloutError(
                f"`{what}` has {int(counts[row])} items at rollout {row}, and `{other}` has {int(known[row])}: "
                f"columns of the list `{of}` have equal lengths"
            )

    def _taken(self, x, name, options):
        of = options.get("level")
        if of not in self.counts:
            return super()._taken(x, name, options)
        counts = self.counts[of][1]

        def place(row):
            rollout = int(torch.searchsorted(counts.cumsum(0), row, right=True))
            return f"{of} {row - int(counts[:rollout].sum())} of rollout {rollout}"

        return _as_tensor(x, name, place, of)

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


def _problems_of(needed, columns, groups):
    """What is wrong with columns of numbers and names that are of no list."""
    known = isinstance(groups, int) and not any(options.get("level") != "batch" for _, options in needed)
    if not needed or known:  # how many rollouts there are is told by lists alone
        return []
    try:
        Batch(columns, groups, needed)
    except RolloutError as problem:
        return [str(problem)]
    return []


def _flat(x, name, lengths, ids=False):
    """The values of a column of lists, flat, and the length of each list.

    lengths: (whose, lengths) if they are known. Then `x` can be flat already. ids: a tuple can be one value.
    """
    if isinstance(x, torch.Tensor) and x.is_nested:
        x = x.unbind()
    if isinstance(x, torch.Tensor) and not _plain(x):
        raise RolloutError(f"column `{name}` is a meta, quantized or sparse tensor: it should be dense, with values")
    if hasattr(x, "dtype") and not isinstance(x, torch.Tensor):
        x = _of_array(x) if _is_numbers(x) else x.tolist()
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
    wrong = [
        i for i, row in enumerate(rows) if not _is_list(row) or (isinstance(row, torch.Tensor) and not _plain(row))
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise RolloutError(
            f"column `{name}` is {rows[wrong[0]]!r:.80} at rollout {wrong[0]}: it should be a list{more}"
        )
    counts = torch.tensor([len(row) for row in rows], dtype=torch.long)
    parts = [_numbers(row) for row in rows if len(row)]
    if parts and all(part is not None for part in parts):
        return torch.cat(parts), counts
    return [value for row in rows for value in (row.tolist() if hasattr(row, "tolist") else row)], counts


def _numbers(row):
    """A tensor or array of numbers as a tensor, in its type; None for other lists."""
    if isinstance(row, torch.Tensor):
        return row
    return _of_array(row) if _is_numbers(row) else None


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
        return {name: self._batch.returned(items.given) for name, items in self._batch.lists.items()}

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
        size = self._advantage.abs() if items is None else items.in_rollouts.reduce(_largest, self._advantage.abs())
        layout = batch.groups if items is None else items.in_groups
        spread = layout.reduce(_range, self._advantage)
        found = {
            "rollouts_without_signal": 1 - torch.count_nonzero(size) / size.numel(),
            "groups_without_signal": 1 - torch.count_nonzero(spread) / spread.numel(),
            "advantage_spread": spread.mean(dtype=torch.float64),
            "groups_kept": batch.full_groups(True if self._kept is None else self._kept).double().mean(),
        }
        if self._copies is not None:
            found["most_copies"] = batch.full_groups(self._copies).max().double()
        if self._summed() is not None:
            total = self._frame("total")
            values = total.full(self._summed()).double()
            found["total"] = values.nanmean()
            found["total_std"] = (
                (total.groups if total is batch else total.in_groups).reduce(_deviation, values).nanmean()
            )
        found |= {f"reward/{name}": x.double().nanmean() for name, x in self._reward_rows().items()}
        for name, x in self._weights.items():
            x = batch.value(x)
            found[f"weight/{name}"] = (batch.full_groups(x) if x.dim() else x).mean(dtype=torch.float64)
        shares = self._share_rows() or {}
        found |= {f"share/{name}": x.double().abs().mean() for name, x in shares.items()}
        values = torch.stack([value.double().to(batch.device) for value in found.values()]).tolist()
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
