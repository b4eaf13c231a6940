"""The rollouts of one call."""

import math

import torch

from rewardspec.emit.runtime.columns import (
    RolloutError,
    _as_tensor,
    _bound,
    _expected,
    _filled,
    _group_ids,
    _held,
    _holds_zero,
    _is_na,
    _not_held,
    _probe,
    _repairs,
    _snap,
    _too_large,
    _within,
)
from rewardspec.emit.runtime.layout import Layout, restored, sorted_layout
from rewardspec.emit.runtime.once import OneLook, Unread
from rewardspec.emit.runtime.plan import Plan, _likeness


def _moment(name, value):
    """`step`, `total_steps` or `seed` as a Python number; None if it was not passed."""
    if (type(value) is int and abs(value) < 2**53) or (value is None and name != "seed"):
        return value
    try:
        number = value.item() if hasattr(value, "item") else value
        number = int(number) if number == int(number) else float(number)
        if isinstance(number, int) if name == "seed" else math.isfinite(float(number)):
            return number
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise RolloutError(f"{name} is {value!r:.80}: it should be a {'whole number' if name == 'seed' else 'number'}")


class Batch(OneLook):
    """The rollouts of one call: its checked columns and the layout of its groups.

    columns: names to tensors, arrays or lists of N values (None and NaN are missing).
    groups: one group size, or N hashable ids.
    needed: (name, options) of each column that is read.
    unread: None, or for `Unread` columns what has to hold: numbers on the device, each with its condition. What is
    wrong is not said then.
    """

    def __init__(self, columns, groups, needed, step=None, total_steps=None, seed=0):
        self.problems, self.checks, self.values, self.others, self.stack, self.finite = [], [], {}, {}, None, None
        self.unread, self.home = ([], columns.home) if isinstance(columns, Unread) else (None, None)
        moments = (("step", step), ("total_steps", total_steps), ("seed", seed))
        self.step, self.total_steps, self.seed = [_moment(name, value) for name, value in moments]
        plans = columns.plans if self.unread is not None and type(self) is Batch else None
        alike = None if plans is None else _likeness(columns.columns, groups, needed)
        if alike is not None and alike in plans:
            plans[alike].read(self, columns.columns)
            return
        if not hasattr(columns, "keys"):
            raise RolloutError(f"expected columns as names with their values, not {columns!r:.80}")
        absent = [name for name, _ in needed if name not in columns]
        if absent:
            found = ", ".join(f"`{name}`" for name in columns) or "none"
            lines = [f"column `{name}` is missing" for name in absent]
            raise RolloutError("\n".join([*lines, f"the given columns are {found}"]))
        columns = {name: columns[name] for name, _ in needed}
        given = {}
        for name, options in needed:
            try:
                given[name] = self._taken(columns[name], name, options)
            except RolloutError as problem:
                self.problems.append(str(problem))
        if self.problems:
            raise RolloutError("\n".join(self.problems))
        numbers = [name for name, options in needed if isinstance(given[name], torch.Tensor) and "ids" not in options]
        typed = [name for name in numbers if hasattr(columns[name], "dtype")]
        self.kinds = {name: given[name].dtype for name in typed}
        self.dtype = torch.float64 if torch.float64 in self.kinds.values() else torch.float32
        self.kinds = {name: self.kinds.get(name, self.dtype) for name in given}  # Python numbers take the common type
        devices = [x.device for x in (*columns.values(), groups) if isinstance(x, torch.Tensor)]
        devices = devices or [torch.empty(0).device]  # lists only: the default device
        self.device = next((d for d in devices if d.type not in ("cpu", "meta")), torch.device("cpu"))
        self._lay_out(
            groups,
            {name: given[name] for name, options in needed if options.get("level", "rollout") in ("rollout", "group")},
        )
        probes = self._read(given, needed)
        self._raise()
        if alike is not None and self._repeats(probes, needed):
            if len(plans) >= 64:  # batches of ever other sizes
                plans.clear()
            plans[alike] = Plan(self, probes)

    def __getstate__(self):
        """Without columns and checks: after the call only the layout of the groups is needed."""
        return {
            **self.__dict__,
            "values": {},
            "checks": [],
            "unread": None,
            "labels": None,
            "stack": None,
            "finite": None,
        }

    def __getitem__(self, name):
        return self.values[name]

    def _taken(self, x, name, options):
        """A column as a tensor; names as they are."""
        return _as_tensor(x, name)

    def _lay_out(self, groups, columns):
        lengths = {name: len(x) for name, x in columns.items() if not isinstance(x, torch.Tensor) or x.dim()}
        if getattr(groups, "ndim", 1) == 0:  # a NumPy or torch scalar
            groups = groups.item()
        if isinstance(groups, int) and not isinstance(groups, bool):
            n, ids, self.labels, size = max([0, *lengths.values()]), None, None, groups
            if groups < 1:
                raise RolloutError(f"the group size is {groups}: it should be at least 1")
            if not lengths:
                raise RolloutError("the spec reads no column with a value for each rollout: pass group ids")
        else:
            self.look_at(groups)
            ids, self.labels, size = _group_ids(groups)
            n = len(ids)
        of = "rollouts" if ids is None else "group ids"
        wrong = [f"column `{name}` has {length} values for {n} {of}" for name, length in lengths.items() if length != n]
        if wrong:
            raise RolloutError("\n".join(wrong))
        if ids is None and n % groups:
            raise RolloutError(f"{n} rollouts do not divide into groups of {groups}")
        self.n = n
        if size:
            count = n // size
            self.groups = Layout((count, size), [(0, count, size)], (count, 1))
            self.order, self.group_of = None, None
        else:
            self.groups = sorted_layout(ids)
            self.first_rows = self.groups.first  # in host memory
            self.groups.first = self.first_rows.to(self.device, non_blocking=True)
            self.order, count = self.groups.order.to(self.device, non_blocking=True), self.groups.reduced[0]
            self.groups.order = None  # `_prepared` sorts each column once
            sizes = self.group_sizes()
            self.group_of = torch.arange(count, device=self.device).repeat_interleave(sizes, output_size=n)
        coarsest = max([0.0, *[torch.finfo(kind).eps for kind in {*self.kinds.values()} if kind.is_floating_point]])
        rounding = max(2 * coarsest, 4 * torch.finfo(self.dtype).eps)
        self.groups.rounding, self.groups.unread = rounding, self.unread

    @property
    def rollouts(self):
        """The layout of the batch as one group of its rollouts."""
        return self._other("rollouts", self.groups.shape)

    @property
    def among_groups(self):
        """The layout of the batch as one group of its groups."""
        return self._other("groups", self.groups.reduced)

    def _other(self, name, shape):
        if name not in self.others:
            self.others[name] = Layout(shape, [(0, 1, math.prod(shape))], ())
            self.others[name].rounding, self.others[name].unread = self.groups.rounding, self.unread
        return self.others[name]

    def group_sizes(self):
        """Rollouts in each group, [P, 1] or [P]."""
        sizes = [torch.full((count,), size, device=self.device) for _, count, size in self.groups.blocks]
        return (
            torch.cat(sizes).reshape(self.groups.reduced)
            if sizes
            else torch.zeros(0, dtype=torch.long, device=self.device)
        )

    # Reading columns

    def _read(self, given, needed):
        """Fill `values`: every column, checked, in the shape of its level.

        The extremes of all columns are fetched together. Only a column whose extremes do not fit its declaration
        is checked value by value. Returns what was probed, with the names and the condition of each, for a `Plan`.
        """
        ready = [(name, self._prepared(name, given[name], options), options) for name, options in needed]
        suspect = set()
        probes = []  # (options, columns, names): short columns with equal declarations share one probe
        for name, x, options in ready:
            if x is not None and x.numel():
                if self.unread is not None:
                    if _repairs(options, self.kinds[name], self.dtype):
                        suspect.add(name)
                        continue
                    if options.get("missing"):
                        x = _filled(x, **options)
                for known, xs, names in probes:
                    if known == options and xs[0].shape == x.shape and x.numel() <= 2**15:
                        xs.append(x)
                        names.append(name)
                        break
                else:
                    probes.append((options, [x], [name]))
        probed = [_probe(torch.stack(xs) if len(xs) > 1 else xs[0], **options) for options, xs, _ in probes]
        kept = []
        if self.unread is not None:
            for (options, _, names), (ends, (low, high)) in zip(probes, probed, strict=True):
                holds = _within(min(low, _held(low, self.dtype)), max(high, _held(high, self.dtype)))
                self.unread += [(end, holds) for end in ends]
                kept.append((options, names, holds))
        else:
            ends = [end for ends, _ in probed for end in ends]
            measured = iter(torch.stack(ends).tolist() if ends else ())
            for (_, _, names), (ends, (low, high)) in zip(probes, probed, strict=True):
                if not all([low <= end <= high and math.isfinite(end) for end in [next(measured) for _ in ends]]):
                    suspect.update(names)
        shape = self.groups.shape
        for name, x, options in ready:
            if x is None:
                continue
            if name in suspect:
                x = self._repaired(name, x, **options)
            level = options.get("level", "rollout")
            self.values[name] = x.reshape(shape) if level == "rollout" else self._coarse(name, x, level)
        self.binary = [name for name, options in needed if options.get("values") == (0.0, 1.0)]
        return kept

    def are_binary(self, values):
        """Whether these are columns, and hold zeros and ones."""
        known = [id(self.values[name]) for name in self.binary]
        return all([id(x) in known for x in values])

    def binary_together(self, values):
        """[K, P, G] these columns of zeros and ones, if they lie together; else None. `constants` is there then."""
        parts, x = self.stack or ((), None)
        if len(parts) != len(values) or not all([a is b for a, b in zip(parts, values, strict=True)]):
            return None
        return x if x.numel() <= 2**18 else None

    def _repeats(self, probes, needed):
        """Whether a call with columns like these can be read as this one, without looking whether something is odd."""
        return (
            sum(len(names) for _, names, _ in probes) == len(needed)
            and {*self.kinds.values()} == {self.dtype}
            and all(options.get("level", "rollout") == "rollout" for _, options in needed)
            and not any("symbols" in options for _, options in needed)
        )

    def _prepared(self, name, x, options):
        """A column in the order and type of the batch; missing values are 0 where the spec says `missing: zero`."""
        if "symbols" in options:
            x = self._codes(name, x, options["symbols"])
            if x is None:
                return None
        elif not isinstance(x, torch.Tensor):
            row, wrong = next((row, v) for row, v in enumerate(x) if isinstance(v, (str, bytes)))
            where = "" if options.get("level") == "batch" else f" at {self.place(row)}"
            self.problems.append(f"column `{name}` is {wrong!r:.80}{where}: it should hold numbers")
            return None
        batch_level = options.get("level") == "batch"
        x = x.reshape(1) if batch_level and x.dim() == 0 else x
        kind = self.kinds[name]
        if options.get("fine") and (torch.float32 is self.dtype or (kind.is_floating_point and kind is not self.dtype)):
            self.problems.append(
                f"column `{name}` declares values that only float64 can distinguish: pass it as float64"
            )
            return None
        if x.dim() != 1:
            self.problems.append(
                f"column `{name}` has shape {tuple(x.shape)}: it should have one value for each rollout"
            )
            return None
        if batch_level and len(x) not in (1, self.n):
            self.problems.append(f"column `{name}` has {len(x)} values: it should have one for the batch")
            return None
        x = x.to(self.device, non_blocking=True)
        x = self._sorted(x, options.get("level"))
        if x.dtype is not self.dtype:
            lost = None if "symbols" in options else _not_held(x, self.dtype, self.unread)
            if lost is not None:
                self.checks.append((lost, lambda i, x=x: self._too_long(name, x, i)))
            x = x.to(self.dtype)
        if options.get("zero") and _holds_zero(**options):
            x = torch.where(torch.isnan(x), 0.0, x)
        return x

    def _sorted(self, x, level):
        """A column in the order of the batch."""
        return x if self.order is None or len(x) != self.n else x[self.order]

    def _repaired(
        self, name, x, values=None, low=None, high=None, symbols=None, missing=False, clip=False, zero=False, **_
    ):
        """A column that may differ from its declaration: snapped or clipped, with a check for the rest.

        A 0 in place of a missing value need not be a declared value.
        """
        measured = x
        if symbols is not None:
            bad = torch.zeros_like(x, dtype=torch.bool)
        elif values is not None:
            x, bad = _snap(x, values, self.kinds[name], clip)
        else:
            x, bad = _bound(x, low, high, self.kinds[name], clip)
        if not missing and not zero:
            bad = bad | torch.isnan(x)
        x = torch.where(torch.isnan(x), 0.0, x) if zero else x
        expected = _expected(values, low, high, symbols)
        self.checks.append((bad, lambda i: self._unwanted(name, measured, i, expected)))
        return x

    def _codes(self, name, x, symbols):
        """The index of each name in `symbols`, NaN for a missing one; None for a column of numbers."""
        index = {symbol: float(i) for i, symbol in enumerate(symbols)}
        if isinstance(x, torch.Tensor) and x.dim() and x.is_floating_point():
            if self.unread is not None:
                self.unread.append((x.isnan().all(), lambda found: found == 1))
            if self.unread is not None or bool(x.isnan().all()):
                return x  # every value is missing
        if isinstance(x, torch.Tensor):
            self.problems.append(f"column `{name}` holds numbers: it should hold names, {', '.join(symbols)}")
            return None
        absent = lambda v: v is None or (isinstance(v, float) and v != v) or _is_na(v)  # noqa: E731
        codes = [math.nan if absent(v) else index.get(v) if isinstance(v, str) else None for v in x]
        for row, code in enumerate(codes):
            if code is None and len(self.problems) < 20:
                self.problems.append(
                    f"column `{name}` is {x[row]!r:.80} at {self.place(row)}: it can be {', '.join(symbols)}"
                )
        return torch.tensor([0.0 if code is None else code for code in codes], device="cpu")

    def _coarse(self, name, x, level):
        """One value for each group, or for the batch, of a column that is equal within it; else a check fails."""
        if level == "batch":
            first = x[:1].reshape(()) if x.numel() else torch.full((), float("nan"), dtype=x.dtype, device=self.device)
            differs = (x != first) & ~(x.isnan() & first.isnan())
            if len(x) > 1:
                self.checks.append(
                    (differs, lambda i: f"column `{name}` differs at {self.where(i)}: it should be equal in the batch")
                )
            return first
        rows = x.reshape(self.groups.shape)
        first = self.groups.reduce(lambda part, _: part[..., :1], rows)
        spread = self.spread(first)
        differs = (rows != spread) & ~(rows.isnan() & spread.isnan())
        self.checks.append(
            (differs, lambda i: f"column `{name}` differs at {self.where(i)}: it should be equal in the group")
        )
        return first

    def _unwanted(self, name, measured, row, expected):
        value = float(measured[row if len(measured) > 1 else 0])
        what = "missing" if value != value else f"{value:.6g}"
        return f"column `{name}` is {what} at {{where}}: it should be {expected}"

    def _too_long(self, name, measured, row):
        value, wide = measured[row if len(measured) > 1 else 0].item(), self.dtype is torch.float32
        kind = str(self.dtype).removeprefix("torch.")
        fix = "pass it as float64" if wide else "use smaller numbers"
        what = f"column `{name}` is {value:.0f} at {{where}}"
        return f"{what}: {kind} cannot hold this whole number, {fix}, or declare an id with `id: true`"

    # Shapes

    def spread(self, x):
        """The group's value for each of its rollouts; `x` itself where that broadcasts: [P, 1] or a scalar."""
        if self.group_of is None or not isinstance(x, torch.Tensor) or not x.dim():
            return x
        return x[self.group_of]

    def full(self, x):
        """A value for every rollout, from a coarser value or a number."""
        return self.value(x).expand(self.groups.shape)

    def full_groups(self, x):
        return self.value(x).expand(self.groups.reduced)

    def value(self, x):
        """A Python number as a tensor; a tensor as it is."""
        if isinstance(x, torch.Tensor):
            return x
        return torch.full((), x, dtype=torch.bool if isinstance(x, bool) else self.dtype, device=self.device)

    def number(self, condition):
        return condition.to(self.dtype)

    def rounded(self, x, name):
        """A constant rounded as the column that it is compared with: a float32 0.7 is then `>= 0.7`."""
        kind = self.kinds[name]
        return _held(x, kind) if kind.is_floating_point else x

    def hold(self, number):
        """Raise if the type of the computation cannot hold a number of the spec."""
        if self.dtype is torch.float32 and _too_large(number):
            raise RolloutError(f"the spec contains {number:g}, more than float32 can hold: pass a float64 column")

    def given(self, name, value):
        """`step`, `total_steps` or `progress` of this call."""
        for needed in ("step", "total_steps") if name == "progress" else (name,):
            if getattr(self, needed) is None:
                raise RolloutError(f"the spec uses `{name}`: pass `{needed}=`")
        if name == "progress":
            if self.total_steps <= 0:
                raise RolloutError(f"total_steps is {self.total_steps}: it should be at least 1")
            value = min(max(self.step / self.total_steps, 0.0), 1.0)
        return torch.full((), float(value), dtype=torch.float64, device=self.device)

    def rows(self, x):
        """One value for every rollout, [N], in the caller's order."""
        x = self.value(x)
        return restored((x if x.shape == self.groups.shape else self.full(x)).reshape(-1), self.order)

    def in_order(self, x):
        """One value for every group, [P], in order of first appearance."""
        x = self.full_groups(x).reshape(-1)
        return x if self.order is None else x[torch.argsort(self.groups.first)]

    def from_order(self, x):
        """The inverse of `in_order`: values of groups in the order of this batch."""
        order = None if self.order is None else torch.argsort(self.groups.first)
        return restored(x, order).reshape(self.groups.reduced)

    def rows_by_group(self):
        """The rows of each group as the caller numbers them; groups in order of first appearance."""
        rows = torch.arange(self.n, device=self.device) if self.order is None else self.order
        rows = rows.split(self.group_sizes().reshape(-1).tolist())
        return rows if self.order is None else [rows[i] for i in torch.argsort(self.groups.first).tolist()]

    # Errors

    def where(self, row):
        """A row in words: its number in the caller's order, and its group."""
        return self.place(row if self.order is None else int(self.order[row]))

    def place(self, row):
        """A row of the caller's in words."""
        return f"rollout {row} of group {self.label(row)!r:.80}"

    def label(self, rollout):
        if self.labels is None:
            return rollout // self.groups.blocks[0][2]
        return self.labels(rollout)

    def refuse(self, bad, what):
        """Add a check: `bad`, a condition of any level, must be false everywhere."""
        bad = bad if torch.is_tensor(bad) else torch.full((), bad, device=self.device)
        if bad.numel() != self.n or bad.dim() != len(self.groups.shape):
            bad = self.spread(bad).expand(self.groups.shape) if bad.dim() else bad.expand(self.groups.shape)
        self.checks.append((bad, lambda i: what + " at {where}"))

    def _raise(self):
        """Raise RolloutError with all problems found. All checks are fetched together: one synchronisation."""
        if self.unread is not None:
            if self.problems:
                raise RolloutError("\n".join(self.problems))
            return
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
        """The advantage in the shape of the groups. Raises RolloutError where it is not finite."""
        advantage = self.value(advantage)
        advantage = advantage if advantage.shape == self.groups.shape else self.full(advantage)
        if advantage is not self.finite and not self._sums(advantage):
            self.checks.append((torch.isnan(advantage), lambda i: "the advantage is missing or 0/0 at {where}"))
            self.checks.append((torch.isinf(advantage), lambda i: "the advantage is infinite at {where}"))
            self._raise()
        return advantage
