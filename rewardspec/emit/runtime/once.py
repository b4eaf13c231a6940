"""One look at the device a call."""

import math

import torch


class Unread:
    """The columns of a call that looks at no value of a tensor before its end.

    home: the device of the results, where the columns are copies in host memory. plans: how earlier calls of the
    function read their columns, by what these had in common; None if that is not kept.
    """

    def __init__(self, columns, home=None, plans=None):
        self.columns, self.home, self.plans = columns, home, plans

    def keys(self):
        return self.columns.keys()

    def __contains__(self, name):
        return name in self.columns

    def __getitem__(self, name):
        x = self.columns[name]
        if hasattr(x, "__next__"):
            raise TypeError("an iterator is read once: by the call that looks at it")
        if isinstance(x, (list, tuple)) and x:
            self.on_host(x[0])
        return x

    def on_host(self, *values):
        """Leave it to host memory, if any of these is a tensor of a device."""
        if any(isinstance(x, torch.Tensor) and x.device.type != "cpu" for x in values):
            raise OnHost


class OnHost(Exception):
    """What is asked has a shape that depends on values: it is computed in host memory."""


class OneLook:
    """What a batch knows of a call that looks once.

    unread: None, or what has to hold: numbers on the device, each with its condition, a function of the number or of
    a tensor of it. home: the device of the results, if the columns are copies.
    """

    def _sums(self, advantage):
        """Raise what was found before; then whether the sum is finite, as that of finite values is but for overflow."""
        total = advantage.sum()
        if self.unread is not None:
            self.unread.append((total, _is_finite))
            return True
        total = total.item()
        self._raise()
        return math.isfinite(total)

    def found(self):
        """What has to hold: numbers on the device, each with its condition."""
        return [*self.unread, *[(bad.any(), _is_zero) for bad, _ in self.checks]] if self.checks else self.unread

    def fulfilled(self, more=None):
        """If all holds, the numbers of `more`, a tensor of float64, as Python's; else None. One look at the device."""
        if self.device.type == "cpu":
            for number, holds in self.found():
                if not holds(number.tolist()):
                    return None
            return [] if more is None else more.tolist()
        found = self.found()
        numbers = torch.stack([number.double() for number, _ in found])
        read = (numbers if more is None else torch.cat([numbers, more])).tolist()
        return read[len(found) :] if all([holds(read[i]) for i, (_, holds) in enumerate(found)]) else None

    def look_at(self, x):
        """Say that the values of `x` are looked at before the end."""
        if self.unread is not None and isinstance(x, torch.Tensor) and x.device.type != "cpu":
            raise OnHost

    def read(self):
        """From here on values are looked at."""
        self.unread, self.checks, self.groups.unread = None, [], None
        for layout in self.others.values():
            layout.unread = None

    def returned(self, x):
        """A tensor of a result, on the device of the columns."""
        return x if self.home is None else x.to(self.home, non_blocking=True)


def _is_zero(found):
    return found == 0


def _is_finite(found):
    return found - found == 0


def read_once(function):
    """`function`, looking at the device once a call.

    The first run looks at nothing. Whatever it relies on is a number with a condition; all of these are read together
    at its end, and if they hold, so does the result. Where a shape depends on values, the columns are first copied to
    host memory, together. If something does not hold, or is wrong, the function runs as if nothing was known: it looks
    wherever it has to, repairs the columns and says what is wrong.
    """

    plans = {}

    def advantages(columns, groups, **options):
        if hasattr(columns, "keys") and not hasattr(groups, "__next__"):
            try:
                try:
                    result = function(Unread(columns, None, plans), groups, **options)
                except OnHost:
                    columns_, groups_, options_ = _in_host_memory(columns, groups, options)
                    result = function(columns_, groups_, **options_)
                if result.holds():
                    return result
            except Exception:  # the run that looks says what it is
                pass
        return function(columns, groups, **options)

    advantages.__doc__, advantages.__wrapped__ = function.__doc__, function
    return advantages


def _in_host_memory(columns, groups, options):
    """A call whose tensors of a device are in host memory: one copy for all of them."""
    given = dict(columns)
    given = {name: x.unbind() if getattr(x, "is_nested", False) else x for name, x in given.items()}
    lengths = options.get("lengths")
    lengths = dict(lengths) if hasattr(lengths, "keys") else {}
    found = {}
    for x in (*given.values(), *lengths.values(), groups):
        for part in _tensors_in(x):
            if part.device.type != "cpu":
                found[id(part)] = part
    if not found:
        return Unread(given), groups, options
    home = next(iter(found.values())).device
    tensors = sorted(found.values(), key=lambda x: -x.element_size())  # each at a place that its type can have
    parts = [x.detach().contiguous().reshape(-1).view(torch.uint8) for x in tensors]
    parts = torch.cat(parts).cpu().split([len(part) for part in parts])
    copies = {id(x): part.view(x.dtype).view(x.shape) for x, part in zip(tensors, parts, strict=True)}

    def copied(x):
        parts = [copies.get(id(part), part) for part in _tensors_in(x)]
        return parts if isinstance(x, (list, tuple)) and parts else parts[0] if parts else x

    if lengths:
        options = {**options, "lengths": {name: copied(x) for name, x in lengths.items()}}
    return Unread({name: copied(x) for name, x in given.items()}, home), copied(groups), options


def _tensors_in(x):
    """A tensor, or the tensors of a list of them."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, (list, tuple)) and x and all(isinstance(part, torch.Tensor) for part in x):
        return x
    return []
