"""What a spec gives for one batch, one rollout at a time: values are asked for where the language asks for them."""

from dataclasses import dataclass
from fractions import Fraction

import mpmath

from reference.numbers import Arithmetic, NoValue, TooClose, compares, digits
from reference.reader import BATCH, GROUP, OF_EACH, ONE_NUMBER, ROLLOUT

MISSING = None


class RolloutError(Exception):
    """The call raises."""


@dataclass
class Batch:
    """columns: N values each, Fractions, symbols or None. groups: N ids. units: of the column's own float type."""

    columns: dict
    groups: list
    step: int | None = None
    total_steps: int | None = None
    copies: list | None = None

    def __post_init__(self):
        order = {}
        for i, group in enumerate(self.groups):
            order.setdefault(group, []).append(i)
        self.members = list(order.values())
        self.group_of = {i: g for g, members in enumerate(self.members) for i in members}


@dataclass
class Outcome:
    """advantages, rewards: N Numbers each, MISSING where ignored. weights: one, or one a group. kept: P flags."""

    advantages: list
    rewards: dict
    weights: dict
    kept: list


class Evaluation:
    """Values of nodes for a batch. kept: the groups that take part in statistics over the batch."""

    def __init__(self, reader, batch, columns, arithmetic, kept=None):
        self.reader, self.batch, self.columns, self.kept = reader, batch, columns, kept
        self.arithmetic, self.memo = arithmetic, {}

    def at(self, node, i):
        """The value of a node for rollout `i`: a Number, a symbol or MISSING."""
        place = (id(node), i if node.level == ROLLOUT else self.batch.group_of[i] if node.level == GROUP else 0)
        if place not in self.memo:
            self.memo[place] = self.evaluate(node, i)
        return self.memo[place]

    def holds(self, node, i, wanted=True):
        """Whether a condition holds, or its `not` does (wanted=False): of a missing one, neither."""
        if node.op == "not":
            return self.holds(node.args[0], i, not wanted)
        if node.op in ("and", "or"):
            parts = (self.holds(a, i, wanted) for a in node.args)  # from the left, as far as is needed
            return all(parts) if (node.op == "and") is wanted else any(parts)
        value = self.at(node, i)
        return value is not MISSING and (value.value == 1) is wanted

    def truth(self, flag):
        return self.arithmetic.leaf(Fraction(int(flag)))

    def evaluate(self, node, i):
        op, args = node.op, node.args
        if op == "const":
            return self.arithmetic.leaf(node.attribute)
        if op == "missing":
            return MISSING
        if op == "symbol":
            return node.attribute
        if op == "column":
            return self.columns[node.attribute][i]
        if op == "given":
            return self.given(node.attribute, i)
        if op == "if":
            return self.at(args[1] if self.holds(args[0], i) else args[2], i)
        if op in ("and", "or"):
            return self.connective(node, i)
        if op == "coalesce":
            return next((v for a in args if (v := self.at(a, i)) is not MISSING), MISSING)
        if op == "present":
            return self.truth(self.at(args[0], i) is not MISSING)
        if op == "reduce":
            return self.reduced(node, i)
        if op == "components":
            return self.over_components(node, i)
        values = [self.at(a, i) for a in args]
        if op == "required" and values[0] is MISSING:
            raise RolloutError("required")
        if any(v is MISSING for v in values):
            return MISSING
        return self.operation(node, values, i)

    def operation(self, node, values, i):
        op, do = node.op, self.arithmetic
        if op in ("spread", "required"):
            return values[0]
        if op in ("==", "!=") and isinstance(values[0], str):
            return self.truth((values[0] == values[1]) == (op == "=="))
        if op in ("<", "<=", ">", ">=", "==", "!="):
            return self.truth(do.compare(op, *values))
        if op == "not":
            return self.truth(values[0].value == 0)
        if op in ("min", "max"):
            return do.least(values) if op == "min" else do.greatest(values)
        if op == "-" and self.is_less_its_mean(node) and self.without_spread(node.args[1], i):
            return do.leaf(Fraction(0))
        if all(a.op in ("const", "given") for a in node.args) and do.unit:
            exact = Arithmetic()  # numbers alone are exact
            return do.leaf(Evaluation(self.reader, self.batch, {}, exact).operation(node, values, i).value)
        if op in ONE_NUMBER:
            return do.call(op, values[0])
        names = {"+": do.add, "-": do.sub, "*": do.mul, "/": do.div, "**": do.power, "neg": do.neg, "comb": do.comb}
        return names[op](*values)

    def connective(self, node, i):
        """1 where it holds, 0 where its `not` does."""
        if self.holds(node, i):
            return self.truth(True)
        return self.truth(False) if self.holds(node, i, wanted=False) else MISSING

    def given(self, name, i):
        group = self.batch.group_of[i]
        if name in ("step", "total_steps", "progress") and (
            self.batch.step is None or (name != "step" and self.batch.total_steps is None)
        ):
            raise RolloutError(f"a call without {name}")
        if name == "progress":
            return self.arithmetic.leaf(
                min(max(Fraction(self.batch.step, self.batch.total_steps), Fraction(0)), Fraction(1))
            )
        known = {
            "step": lambda: self.batch.step,
            "total_steps": lambda: self.batch.total_steps,
            "batch_size": lambda: len(self.batch.groups),
            "group_size": lambda: len(self.batch.members[group]),
            "eps": lambda: self.reader.eps,
            "pi": lambda: +mpmath.pi,
            "copies": lambda: self.batch.copies[group],
        }[name]()
        return self.arithmetic.leaf(known if isinstance(known, mpmath.mpf) else Fraction(known))

    # Reductions ----------------------------------------------------------------------------------

    def cell(self, node, i):
        """The rollouts that a reduction looks at, one of each group where values are of group level."""
        name, over, _, _, has_by = node.attribute
        x = node.args[0]
        if over == "group":
            found = self.batch.members[self.batch.group_of[i]]
        else:
            groups = [m for g, m in enumerate(self.batch.members) if self.kept is None or self.kept[g]]
            single = x.level == GROUP and name not in OF_EACH
            found = [j for members in groups for j in (members[:1] if single else members)]
        if has_by:
            by = node.args[-1]
            own = self.at(by, i)
            found = [j for j in found if self.alike(self.at(by, j), own)]
        return found

    def alike(self, a, b):
        if a is MISSING or b is MISSING or isinstance(a, str):
            return a == b
        return self.arithmetic.order(a, b) == 0

    def used(self, node, i):
        """(rollout, value) of those that are selected and present."""
        x, selected = node.args[0], node.attribute[3]
        found = [j for j in self.cell(node, i) if not selected or self.holds(node.args[1], j)]
        return [(j, v) for j in found if (v := self.at(x, j)) is not MISSING]

    def reduced(self, node, i):
        name, _, setting, _, _ = node.attribute
        used = self.used(node, i)
        if name in OF_EACH:
            own = dict(used).get(i, MISSING)
            if own is MISSING:
                return MISSING
            if name == "rank":
                less = sum(self.arithmetic.order(v, own) < 0 for _, v in used)
                return self.arithmetic.leaf(Fraction(1 + less))
            others = [v for j, v in used if j != i]
            return self.statistic("std", others, setting, node.args[0])
        return self.statistic(name, [v for _, v in used], setting, node.args[0])

    def over_components(self, node, i):
        name, size, setting = node.attribute
        xs, wheres = node.args[:size], node.args[size:]
        chosen = [x for at, x in enumerate(xs) if not wheres or self.holds(wheres[at], i)]
        values = [v for x in chosen if (v := self.at(x, i)) is not MISSING]
        return self.statistic(name, values, setting, None)

    def statistic(self, name, values, setting, x):
        do = self.arithmetic
        if name == "count":
            return do.leaf(Fraction(len(values)))
        if name in ("any", "all"):
            held = [v.value == 1 for v in values]
            return self.truth(any(held) if name == "any" else all(held))
        if name == "sum":
            return do.sum(values)
        if name in ("std", "var"):
            return self.deviation(name, values, setting, x)
        if not values:
            return MISSING
        if name == "mean":
            return do.div(do.sum(values, "mean"), do.leaf(Fraction(len(values))))
        if name in ("min", "max"):
            return do.least(values) if name == "min" else do.greatest(values)
        ordered = sorted(values, key=lambda v: digits(v.value))
        if name == "kth":
            return ordered[-int(setting)] if setting <= len(ordered) else MISSING
        assert name == "quantile", name
        place = setting * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        part = do.mul(do.leaf(place - low), do.sub(ordered[high], ordered[low]))
        return do.add(ordered[low], part) if place > low else ordered[low]

    def deviation(self, name, values, ddof, x):
        do = self.arithmetic
        if len(values) < 2 or not self.has_spread(values, x):
            return do.leaf(Fraction(0))
        exact = [v.value for v in values]
        if not all(isinstance(v, Fraction) for v in exact):
            exact = [digits(v) for v in exact]
        mean = sum(exact) / len(exact)
        variance = sum((v - mean) ** 2 for v in exact) / (len(exact) - ddof)
        off = 2 * max(do.off(v) for v in values)
        root = do.root(variance)
        made = (name, ddof, *sorted(v.made for v in values))
        if name == "var":
            return do.number(variance, 2 * float(root) * off + off * off + do.unit * float(variance), made)
        return do.number(root, off * 1.5 + do.unit * float(root), made)

    def has_spread(self, values, x):
        """Law 1. Sums that differ in rounding alone have none; what else is that close is no test."""
        do = self.arithmetic
        if all(isinstance(v.value, Fraction) for v in values) and not do.unit:
            return any(v.value != values[0].value for v in values)
        if do.unit and len({v.made for v in values}) == 1:
            return False
        exact = [digits(v.value) for v in values]
        spread, largest = max(exact) - min(exact), max(abs(v) for v in exact)
        if spread <= largest * mpmath.mpf(10) ** -48:
            if do.unit and x is not None and not seen_through(x) and any(v.error for v in values):
                raise TooClose
            return False
        if do.unit and float(spread) <= 16 * (max(do.off(v) for v in values) + 4 * do.coarsest * float(largest)):
            raise TooClose
        return True

    def is_less_its_mean(self, node):
        x, mean = node.args
        return mean.op == "reduce" and mean.attribute[0] == "mean" and mean.args[0] is x

    def without_spread(self, mean, i):
        used = self.used(mean, i)
        return i in dict(used) and not self.has_spread([v for _, v in used], mean.args[0])


def seen_through(x):
    """Whether a value is a sum in the sense of law 1."""
    if x.op in ("+", "-", "components", "column"):
        return True
    if x.op in ("if", "min", "max", "coalesce", "spread", "neg", "*"):
        return any(seen_through(a) for a in x.args)
    return False


# A whole call ------------------------------------------------------------------------------------


def measured_columns(reader, batch, arithmetic, units, read=None):
    """The columns after `missing` and `outside`. units: the relative rounding of each column's type. read: those that
    are held to their declarations. Raises RolloutError.
    """
    found = {}
    for name in sorted(reader.claimed_columns & batch.columns.keys() | reader.read_columns):
        column, held = reader.columns[name], read is None or name in read
        if name not in batch.columns:
            raise RolloutError(f"no column {name}")
        values = [one_value(column, v, units.get(name, 0), held) for v in batch.columns[name]]
        if column.missing == "zero":
            values = [Fraction(0) if v is MISSING else v for v in values]
        of_one = batch.members if column.level == GROUP else [range(len(values))] if column.level == BATCH else []
        if held and any(len({values[i] for i in members}) > 1 for members in of_one):
            raise RolloutError(f"{name} is not equal")
        if held:
            for v in values:
                refuse_large(arithmetic, name, v)
        found[name] = [v if v is MISSING or isinstance(v, str) else arithmetic.leaf(v) for v in values]
    return found


def refuse_large(arithmetic, name, value):
    """A whole number that the type of the computation cannot hold is refused."""
    if isinstance(value, Fraction) and arithmetic.unit and value.denominator == 1 and not arithmetic.holds(value):
        raise RolloutError(f"{name}: {value} is too large")


def one_value(column, value, unit, held):
    """A value of a column, held to its domain."""
    if value is MISSING:
        return MISSING
    if column.symbols:
        if value not in column.values:
            raise RolloutError(f"{column.name}: no such name")
        return value
    if isinstance(value, float):
        raise RolloutError(f"{column.name}: infinite")
    ends = [end for end in column.ends if not isinstance(end, float)]
    for declared in column.values or ends:
        if abs(value - declared) <= 2 * unit * abs(declared):
            return declared
    if column.values is not None:
        if column.outside == "clip":
            return min(column.values, key=lambda d: abs(d - value))
        if held:
            raise RolloutError(f"{column.name}: not a declared value")
        return value
    low, high = column.range
    if low <= value <= high:
        return value
    if column.outside == "error" and held:
        raise RolloutError(f"{column.name}: outside")
    return low if value < low else high


def interpret(reader, batch, unit=0.0, units=None, read=None):
    """The Outcome of a call. unit: relative rounding of the type of the computation; units: of columns. read: columns
    that something depends on, where a reader knows better (`x > 0 or 1` does not depend on x).

    Raises RolloutError where the call has to, TooClose where floats cannot be held to it.
    """
    arithmetic = Arithmetic(unit, max((units or {}).values(), default=unit))
    columns = measured_columns(reader, batch, arithmetic, units or {}, read)
    whole = Evaluation(reader, batch, columns, arithmetic)
    n, groups = range(len(batch.groups)), batch.members
    try:
        for name in reader.read_columns if read is None else read:
            column = reader.columns[name]
            if column.missing == "error" and any(
                columns[name][i] is MISSING and (column.gate is None or whole.holds(column.gate, i)) for i in n
            ):
                raise RolloutError(f"{name} is missing")
        rewards = {name: [whole.at(node, i) for i in n] for name, node in reader.shaped.items()}
        weights = {
            name: whole.at(node, 0) if node.level == BATCH else [whole.at(node, m[0]) for m in groups]
            for name, node in reader.weights.items()
        }
        kept = [reader.keep is None or whole.holds(reader.keep, m[0]) for m in groups]
        if reader.refill is not None:
            for members, in_it in zip(groups, kept, strict=True):
                if in_it and whole.at(reader.refill, members[0]) is MISSING:
                    raise RolloutError("a score is missing")
        if batch.copies is None:
            batch.copies = [int(k) for k in kept]
        inside = Evaluation(reader, batch, columns, arithmetic, kept)
        advantages = [advantage(inside, i) if kept[batch.group_of[i]] else arithmetic.leaf(Fraction(0)) for i in n]
    except NoValue as error:
        raise RolloutError(str(error)) from None
    return Outcome(advantages, rewards, weights, kept)


def advantage(evaluation, i):
    """The advantage of a rollout: 0 where nothing was measured."""
    if evaluation.at(evaluation.reader.measured, i).value == 0:
        return evaluation.arithmetic.leaf(Fraction(0))
    value = evaluation.at(evaluation.reader.advantage.args[0], i)
    if value is MISSING:
        raise RolloutError("the advantage is missing")
    return value


__all__ = ["Batch", "Evaluation", "Outcome", "RolloutError", "compares", "interpret"]
