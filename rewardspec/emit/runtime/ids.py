"""Columns of ids: any values, as whole numbers that are equal where the values are."""

import math

import torch

from rewardspec.emit.runtime.batch import Batch
from rewardspec.emit.runtime.columns import _as_tensor, _is_na, _of_array
from rewardspec.emit.runtime.lists import ListBatch


class Ids:
    """What a batch does with columns of ids: any hashable values, as whole numbers that are equal where those are."""

    def _taken(self, x, name, options):
        if "ids" not in options:
            return super()._taken(x, name, options)
        self.look_at(x)
        return _as_ids(x, name)

    def _read(self, given, needed):
        self.levels = {name: options.get("level") for name, options in needed if "ids" in options}
        codes, count, wrong = _codes_of({name: given[name] for name in self.levels})
        for name, rows in wrong.items():
            (row, (what, why)), *more = rows.items()
            others = f" (and {len(more)} more)" if more else ""
            self.problems.append(f"column `{name}` is {what}{self._at(name, row)}: {why}{others}")
        if count > 2 / torch.finfo(self.dtype).eps:
            self.problems.append(f"there are {count} different ids: pass a column of numbers as float64")
        super()._read({**given, **{name: x.to(self.dtype) for name, x in codes.items()}}, needed)

    def _at(self, name, row):
        if self.levels[name] == "batch":
            return ""
        self.reading = getattr(self, "lists", {}).get(self.levels[name])  # `place` reads it
        where = self.place(row)
        self.reading = None
        return f" at {where}"

    def _unwanted(self, name, measured, row, expected):
        return super()._unwanted(name, measured, row, "an id" if name in self.levels else expected)


class IdBatch(Ids, Batch):
    """A batch some of whose columns are ids."""


class IdListBatch(Ids, ListBatch):
    """A batch whose rollouts have lists, and some of whose columns are ids."""


def _as_ids(x, name):
    """A column of ids: whole numbers as an int64 tensor, anything else as a list."""
    if hasattr(x, "dtype") and hasattr(x, "tolist") and not isinstance(x, torch.Tensor):  # NumPy, pandas
        x = _of_array(x) if str(getattr(x.dtype, "kind", "")) in "bi" and not hasattr(x, "isna") else x.tolist()
    if isinstance(x, torch.Tensor):
        x = _as_tensor(x, name)
        if x.dtype is torch.uint64 or x.is_floating_point() or x.dim() > 1:
            return _as_ids(_floats(x) if x.is_floating_point() else x.tolist(), name)
        return x.reshape(-1).long()
    if isinstance(x, (str, bytes)):
        return [x]
    try:
        return list(x)
    except TypeError:  # one value for the batch
        return [x]


def _floats(x):
    """A tensor of floats as a list of scalars that know their type, which says what it can hold exactly."""
    return x.tolist() if x.dtype is torch.float64 else list(x.unbind()) if x.dim() else x.item()


def _plain_id(value):
    """A value as an id, None where it is missing; and what is wrong with it, or None."""
    most = 2**53  # float64 holds every whole number up to here
    if hasattr(value, "dtype") and hasattr(value, "item") and not getattr(value, "ndim", 0):  # a NumPy or torch scalar
        kind = value.dtype
        if not isinstance(kind, torch.dtype):
            kind = {2: torch.float16, 4: torch.float32}.get(getattr(kind, "itemsize", 8))
        if kind is not None and kind.is_floating_point:
            most = int(2 / torch.finfo(kind).eps)
        value = value.item()
    if value is None or _is_nan(value) or _is_na(value):
        return None, None
    if not isinstance(value, float):
        return value, None
    if not value.is_integer():
        return value, (f"{value!r}", "an id is a text, a whole number or another hashable value")
    if abs(value) > most:
        return value, (f"{value:.0f}", "its float type does not tell such numbers apart, pass integers or texts")
    return int(value), None


def _is_nan(value):
    """Whether a value differs from itself, as NaN and NaT do."""
    try:
        return bool(value != value)
    except Exception:
        return False


def _codes_of(columns):
    """A whole number for each value of these columns, equal where the values are, and NaN where they are missing.

    columns: name to what `_as_ids` gives. Returns name to [N], below a count; the count; and for each
    column that is wrong the rows, each with its value and the reason.
    """
    if all(isinstance(x, torch.Tensor) for x in columns.values()):
        flat = [x.reshape(-1) for x in columns.values()]
        values = torch.cat([x.to(flat[0].device) for x in flat]) if len(flat) > 1 else flat[0]
        low, high = (int(end) for end in torch.aminmax(values)) if len(values) else (0, 0)
        if high - low < 2**16:  # near each other: no need to sort them
            codes, count = values - low if low else values, high - low + 1
        else:
            known, codes = torch.unique(values, return_inverse=True)
            count = len(known)
        return dict(zip(columns, codes.split([len(x) for x in flat]), strict=True)), count, {}
    first, rows, wrong, unhashable = {}, {}, {}, object()
    for name, x in columns.items():
        x = x.reshape(-1).tolist() if isinstance(x, torch.Tensor) else x
        try:
            rows[name] = [first.setdefault(value, len(first)) for value in x]
        except TypeError:
            rows[name] = []
            for row, value in enumerate(x):
                try:
                    code = first.setdefault(value, len(first))
                except TypeError:
                    code = first.setdefault(unhashable, len(first))
                    why = "an id is a text, a whole number or another hashable value"
                    wrong.setdefault(name, {})[row] = f"{value!r:.80}", why
                rows[name].append(code)
    final, codes, refused = {}, [], {}
    for at, value in enumerate(first):
        value, why = _plain_id(value)
        codes.append(math.nan if value is None else final.setdefault(value, len(final)))
        if why is not None:
            refused[at] = why
    for name, row, at in [
        (n, row, at) for n, codes_of in rows.items() for row, at in enumerate(codes_of) if at in refused
    ]:
        wrong.setdefault(name, {})[row] = refused[at]
    codes = torch.tensor(codes, dtype=torch.float64, device="cpu")
    found = {name: codes[torch.tensor(at, dtype=torch.long, device="cpu")] for name, at in rows.items()}
    return found, len(final), wrong
