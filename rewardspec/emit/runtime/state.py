"""The state of a spec: read before a batch, and its values after it."""

import math

import torch

from rewardspec.emit.runtime.columns import RolloutError, _expected, _too_large
from rewardspec.emit.runtime.ids import _as_ids, _plain_id


def _ends(options):
    return options.get("low", -math.inf), options.get("high", math.inf)


def first_state(needed):
    """The state before the first batch: {"price": 0.1, "level_of": []}."""
    return {name: [] if "by" in options else options["init"] for name, options in needed}


class State:
    """The state that a call is given, checked.

    given: name to a number, or to a list of [key, number], least recently seen first. It is not changed; entries that
    stay as they are go into the state after the batch.
    needed: (name, options) of each state. Raises RolloutError with all that is wrong.
    """

    def __init__(self, given, needed):
        self.needed, self.problems = needed, []
        if given is None:
            raise RolloutError(
                "the spec has state: pass `state=`, at first `initial_state()`, then the `state` of the result before"
            )
        if not hasattr(given, "keys"):
            raise RolloutError(f"state is {given!r:.80}: it should map names to values, as `initial_state()`")
        names = [name for name, _ in needed]
        self.problems += [f"state `{name}` is missing" for name in names if name not in given]
        self.problems += [
            f"state `{name!s:.80}` is not one of {', '.join(names)}" for name in given if name not in names
        ]
        self.held = {}
        for name, options in needed:
            if name in given:
                keyed = "by" in options
                make, what = (self._keyed, name) if keyed else (self._number, f"state `{name}`")
                self.held[name] = make(what, given[name], options)
        if self.problems:
            raise RolloutError("\n".join(self.problems))

    def _keyed(self, name, given, options):
        """A list of [key, number] as a dict of its entries by key."""
        if not isinstance(given, (list, tuple)):
            self.problems.append(f"state `{name}` is {given!r:.80}: it should be a list of [key, number]")
            return {}
        before, (low, high) = len(self.problems), _ends(options)
        plain = {*map(type, given)} <= {list} and {*map(len, given)} <= {2}  # fast: there may be many
        if plain and {type(k) for k, _ in given} <= {str, int} and {type(v) for _, v in given} <= {float}:
            found, values = {entry[0]: entry for entry in given}, [v for _, v in given]
            inside = not values or (low <= min(values) and max(values) <= high and sum(map(abs, values)) < math.inf)
            if inside and len(found) == len(given):
                return self._few(name, found, options)
        found = {}
        for place, pair in enumerate(given):
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                self.problems.append(f"entry {place} of state `{name}` is {pair!r:.80}: it should be [key, number]")
            elif type(pair[0]) not in (str, int):
                self.problems.append(f"a key of state `{name}` is {pair[0]!r:.80}: it should be a text or whole number")
            elif pair[0] in found:
                self.problems.append(f"the key {pair[0]!r:.80} is twice in state `{name}`")
            else:
                value = self._number(f"state `{name}` of {pair[0]!r:.80}", pair[1], options)
                found[pair[0]] = [pair[0], value]
            if len(self.problems) > before + 20:
                break
        return self._few(name, found, options)

    def _few(self, name, found, options):
        if len(found) > options["most"]:
            self.problems.append(f"state `{name}` has {len(found)} keys: it should have at most {options['most']}")
        return found

    def _number(self, what, value, options):
        low, high = _ends(options)
        if type(value) not in (float, int) or not abs(value) <= torch.finfo(torch.float64).max:
            self.problems.append(f"{what} is {value!r:.80}: it should be a finite number")
            return 0.0
        if not low <= value <= high:
            self.problems.append(f"{what} is {value:.6g}: it should be {_expected(None, low, high)}")
        return float(value)

    def read(self, batch, columns):
        """Make the values before the batch readable as columns of the batch."""
        self.keys = {}
        for name, options in self.needed:
            values = self.held[name]
            if "by" in options:
                keys = self.keys[name] = _keys_of_groups(batch, columns[options["by"]], options["by"])
                new = None, options["init"]
                values = [values.get(key, new)[1] for key in keys]
            found = torch.tensor(values, dtype=torch.float64, device="cpu")
            largest = max(map(abs, values if "by" in options else [values]), default=0.0)
            if batch.dtype is torch.float32 and _too_large(largest):
                raise RolloutError(f"state `{name}` is more than float32 can hold: pass a float64 column")
            found = found.to(device=batch.device, dtype=batch.dtype, non_blocking=True)
            batch.values[name] = batch.from_order(found) if "by" in options else found
            batch.kinds[name] = batch.dtype

    def asked(self, batch, updates):
        """What the state after the batch is made of: name to [1] or [P]. updates: name to the value of its level."""
        of_batch = [name for name, options in self.needed if "by" not in options]
        return {
            name: batch.value(x).reshape(1) if name in of_batch else batch.in_order(x) for name, x in updates.items()
        }

    def after(self, batch, counts, listed):
        """The state after the batch. counts: how many numbers each name has. listed: all of them."""
        if not batch.n:
            return {name: [*held.values()] if "by" in options else held for (name, options), held in self._each()}
        listed = iter(listed)
        found = {name: [next(listed) for _ in range(count)] for name, count in counts.items()}
        state = {name: self._after(name, options, held, found[name]) for (name, options), held in self._each()}
        if self.problems:
            raise RolloutError("\n".join(self.problems))
        return state

    def _each(self):
        return [((name, options), self.held[name]) for name, options in self.needed]

    def _after(self, name, options, held, found):
        if "by" not in options:
            return self._held_to_range(name, options, found[0], held)
        seen = {}
        for key, value in zip(self.keys[name], found, strict=True):
            if key is not None:
                seen.setdefault(key, []).append(value)
        after = dict(held)
        for key, values in seen.items():  # groups with one key: the mean of their updates
            present = [value for value in values if value == value]
            mean = sum(present) / len(present) if present else math.nan
            _, before = after.pop(key, (None, options["init"]))
            after[key] = [key, self._held_to_range(name, options, mean, before)]
        return [*after.values()][max(0, len(after) - options["most"]) :]

    def _held_to_range(self, name, options, value, before):
        """A value after the batch; the one before it where there is none."""
        if value != value and options.get("missing"):
            return before
        low, high = _ends(options)
        value = min(max(value, low), high) if value == value else value
        if not math.isfinite(value):
            self.problems.append(f"the update of state `{name}` is {value}: it should be a finite number")
        return value


def _keys_of_groups(batch, column, name):
    """The key of each group, a text or whole number, in order of first appearance; None where it is missing."""
    if not batch.n:
        return []
    rows = range(0, batch.n, batch.groups.blocks[0][2])
    if batch.order is not None:
        rows = sorted(batch.first_rows.tolist())
    batch.look_at(column)
    column = _as_ids(column, name)
    if isinstance(column, torch.Tensor):
        column = column.tolist()
    keys = []
    for row in rows:
        key, _ = _plain_id(column[row])
        if key is not None and type(key) not in (str, int):
            raise RolloutError(
                f"column `{name}` is {key!r:.80} at rollout {row} of group {batch.label(row)!r:.80}: "
                "a key of state should be a text or whole number"
            )
        keys.append(key)
    return keys


def with_state(result, state, updates):
    """The result, with the state after its batch."""
    batch = result._batch
    found = state.asked(batch, updates)
    counts = {name: len(x) for name, x in found.items()}
    numbers = torch.cat([x.double() for x in found.values()])

    def keep(listed):
        result.state = state.after(batch, counts, listed)

    if batch.unread is None:
        keep(numbers.tolist())
    else:
        result.later = numbers, keep
    return result
