"""What a spec gives for one batch, one rollout and one item at a time: values are asked for where the language asks."""

from dataclasses import dataclass, field
from fractions import Fraction

import mpmath

from reference.measured import (
    MISSING,
    Batch,
    Id,
    Item,
    RolloutError,
    held_state,
    initial_state,
    key_of,
    lengths_of,
    measured_columns,
)
from reference.nodes import BATCH, GROUP, OF_EACH, ROLLOUT, finest
from reference.numbers import Arithmetic, NoValue, compares
from reference.reader import ALONG, ONE_NUMBER
from reference.statistics import has_spread, statistic


@dataclass
class Outcome:
    """advantages, rewards: N Numbers each, or one for each item; MISSING where ignored. weights: one, or one a group.
    kept: P flags. state: {name: Number} and {name: [(key, Number), ...]}, the longest unseen first.
    """

    advantages: list
    rewards: dict
    weights: dict
    kept: list
    state: dict = field(default_factory=dict)


class Evaluation:
    """Values of nodes for a batch. kept: the groups that take part in statistics over the batch."""

    def __init__(self, reader, batch, columns, arithmetic, kept=None):
        self.reader, self.batch, self.columns, self.kept = reader, batch, columns, kept
        self.arithmetic, self.memo = arithmetic, {}
        self.lengths = lengths_of(reader, batch)
        self.state = held_state(reader, batch, arithmetic)

    def at(self, node, i):
        """The value of a node for rollout or item `i`: a Number, a symbol, an Id or MISSING."""
        if node.level <= ROLLOUT and isinstance(i, Item):
            i = i.rollout
        place = i if node.level >= ROLLOUT else self.batch.group_of[i] if node.level == GROUP else 0
        if (id(node), place) not in self.memo:
            self.memo[id(node), place] = self.evaluate(node, i)
        return self.memo[id(node), place]

    def places(self, level, rollouts):
        """These rollouts, or their items."""
        if level <= ROLLOUT:
            return list(rollouts)
        if self.lengths[level] is None:
            raise RolloutError("how long lists are is not known")
        return [Item(i, at) for i in rollouts for at in range(self.lengths[level][i])]

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
            column = self.columns[node.attribute]
            return column[i.rollout][i.place] if isinstance(i, Item) else column[i]
        if op == "position":
            return self.arithmetic.leaf(Fraction(i.place + 1))
        if op == "state":
            return self.state_of(node.attribute, i)
        if op in ALONG:
            return self.along(node, i)
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
        if op in ("==", "!=") and isinstance(values[0], str | Id):
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

    def along(self, node, i):
        """Of an ordered list: what its items before or after give."""
        x, do = node.args[0], self.arithmetic
        last = self.lengths[node.level][i.rollout] - 1
        if node.op in ("before", "after"):
            to = i.place + (1 if node.op == "after" else -1)
            return self.at(x, Item(i.rollout, to)) if 0 <= to <= last else MISSING
        near = range(i.place + 1) if node.op == "so_far" else range(i.place, last + 1)
        found = [(at - i.place, self.at(x, Item(i.rollout, at))) for at in near]
        terms = [(far, v) for far, v in found if v is not MISSING]
        if node.op == "so_far" or node.attribute == 1:
            return do.sum([v for _, v in terms])
        return do.sum([do.mul(do.leaf(node.attribute**far), v) if far else v for far, v in terms])

    # State ---------------------------------------------------------------------------------------

    def state_of(self, name, i):
        state, held = self.reader.states[name], self.state[name]
        if state.by is None:
            return held
        return held.get(self.key(state, i), self.arithmetic.leaf(state.init))

    def key(self, state, i):
        """The key of a group, MISSING where its id is."""
        found = self.columns[state.by.name][self.batch.members[self.batch.group_of[i]][0]]
        return MISSING if found is MISSING else key_of(found if isinstance(found, str) else found.value)

    def state_after(self):
        """What `state:` is after the batch."""
        after = {}
        for name, state in self.reader.states.items():
            firsts = [members[0] for members in self.batch.members]
            if state.by is None:
                new = self.at(state.update, 0)
                after[name] = self.state[name] if new is MISSING else self.within(state, new)
                continue
            held, updates = dict(self.state[name]), {}
            for i in firsts:
                key, new = self.key(state, i), self.at(state.update, i)
                if key is not MISSING:
                    updates.setdefault(key, []).extend([] if new is MISSING else [new])
            for key, found in updates.items():
                value = held.pop(key, self.arithmetic.leaf(state.init))  # what was seen goes to the end
                if found:
                    value = found[0] if len(found) == 1 else statistic(self.arithmetic, "mean", found, None, None)
                    value = self.within(state, value)
                held[key] = value
            kept = list(held.items())
            after[name] = [(key.value, value) for key, value in kept[-state.most :]]
        return after

    def within(self, state, value):
        do = self.arithmetic
        low, high = (end if isinstance(end, float) else do.leaf(end) for end in state.range)
        value = value if isinstance(low, float) else do.greatest([value, low])
        return value if isinstance(high, float) else do.least([value, high])

    # Reductions ----------------------------------------------------------------------------------

    def cell(self, node, i):
        """The rollouts or items that a reduction looks at, one of each group where values are of group level."""
        name, over, _, _, has_by = node.attribute
        x = node.args[0]
        if over == "rollout":
            found = self.places(x.level, [i.rollout if isinstance(i, Item) else i])
        elif over == "group":
            rollout = i.rollout if isinstance(i, Item) else i
            found = self.places(x.level, self.batch.members[self.batch.group_of[rollout]])
        else:
            groups = [m for g, m in enumerate(self.batch.members) if self.kept is None or self.kept[g]]
            single = x.level == GROUP and name not in OF_EACH
            found = self.places(x.level, [j for members in groups for j in (members[:1] if single else members)])
        if has_by:
            by = node.args[-1]
            own = self.at(by, i)
            found = [j for j in found if self.alike(self.at(by, j), own)]
        return found

    def alike(self, a, b):
        if a is MISSING or b is MISSING or isinstance(a, str | Id):
            return a == b
        return self.arithmetic.order(a, b) == 0

    def used(self, node, i):
        """(rollout or item, value) of those that are selected and present."""
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
            return statistic(self.arithmetic, "std", others, setting, node.args[0])
        return statistic(self.arithmetic, name, [v for _, v in used], setting, node.args[0])

    def over_components(self, node, i):
        name, size, setting = node.attribute
        xs, wheres = node.args[:size], node.args[size:]
        chosen = [x for at, x in enumerate(xs) if not wheres or self.holds(wheres[at], i)]
        values = [v for x in chosen if (v := self.at(x, i)) is not MISSING]
        return statistic(self.arithmetic, name, values, setting, None)

    def is_less_its_mean(self, node):
        x, mean = node.args
        return mean.op == "reduce" and mean.attribute[0] == "mean" and mean.args[0] is x

    def without_spread(self, mean, i):
        used = self.used(mean, i)
        return i in dict(used) and not has_spread(self.arithmetic, [v for _, v in used], mean.args[0])


# A whole call ------------------------------------------------------------------------------------


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
            value, gate = reader.raw(name), column.gate
            places = whole.places(column.level if gate is None else finest([column.level, gate.level]), n)
            if column.missing == "error" and any(
                whole.at(value, i) is MISSING and (gate is None or whole.holds(gate, i)) for i in places
            ):
                raise RolloutError(f"{name} is missing")
        rewards = {
            name: [whole.at(node, i) for i in whole.places(node.level, n)] for name, node in reader.shaped.items()
        }
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
        zero, level = arithmetic.leaf(Fraction(0)), reader.advantage.level
        advantages = [
            advantage(inside, i) if in_it else zero
            for rollout in n
            for in_it in [kept[batch.group_of[rollout]]]
            for i in inside.places(level, [rollout])
        ]
        state = whole.state_after()
    except NoValue as error:
        raise RolloutError(str(error)) from None
    return Outcome(advantages, rewards, weights, kept, state)


def advantage(evaluation, i):
    """The advantage of a rollout: 0 where nothing was measured."""
    if evaluation.at(evaluation.reader.measured, i).value == 0:
        return evaluation.arithmetic.leaf(Fraction(0))
    value = evaluation.at(evaluation.reader.advantage.args[0], i)
    if value is MISSING:
        raise RolloutError("the advantage is missing")
    return value


__all__ = ["Batch", "Evaluation", "Outcome", "RolloutError", "compares", "initial_state", "interpret"]
