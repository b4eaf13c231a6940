"""Every group of a small spec, and what is so of all of them."""

import itertools
import math
from collections import Counter
from fractions import Fraction

from reference.checks import Disagreement
from reference.interpreter import Batch, Evaluation, RolloutError, advantage
from reference.measured import measured_columns
from reference.nodes import BATCH, GROUP, ROLLOUT, walk
from reference.numbers import Arithmetic, NoValue, digits, key
from reference.reader import Reader

MOST = 150  # groups of one size that are tried


class NotAllowed(Exception):
    """A group that no call may have: a value that is needed is missing."""


class Small:
    """A small spec in exact arithmetic, eps read as `eps` (as it is declared, if None)."""

    def __init__(self, draft, text=None, eps=Fraction(0)):
        self.reader = Reader(text or draft.text, eps=eps)
        read = [c for c in draft.columns if c.name in self.reader.claimed_columns]
        self.fine = [c for c in read if c.level == ROLLOUT]
        self.coarse = [c for c in read if c.level < ROLLOUT]
        self.draft, self.seen = draft, {}

    @property
    def over_batch(self):
        """Whether the rest of the batch matters."""
        return any(n.op == "reduce" and n.attribute[1] == "batch" for n in walk([self.reader.advantage]))

    def values(self, column):
        return [*column.values, None] if column.missing == "ignore" or column.gated else list(column.values)

    def states(self):
        """What one rollout can measure."""
        return list(itertools.product(*map(self.values, self.fine)))

    def kinds(self):
        """What columns of the group or the batch can be."""
        return list(itertools.product(*map(self.values, self.coarse)))

    def count(self, size):
        return math.comb(len(self.states()) + size - 1, size) * len(self.kinds())

    def groups(self, size):
        """(kind, members): all, up to the order of rollouts."""
        for kind in self.kinds():
            for members in itertools.combinations_with_replacement(self.states(), size):
                yield kind, members

    def batch(self, *groups):
        """The batch that such groups make."""
        rows = [(g, kind, member) for g, (kind, members) in enumerate(groups) for member in members]
        columns = {c.name: [member[at] for _, _, member in rows] for at, c in enumerate(self.fine)}
        columns |= {c.name: [kind[at] for _, kind, _ in rows] for at, c in enumerate(self.coarse)}
        return Batch(columns, [g for g, _, _ in rows], 0, 4)

    def evaluation(self, batch):
        """(evaluation of a batch, its kept groups, another in which every group counts)."""
        arithmetic = Arithmetic()
        columns = measured_columns(self.reader, batch, arithmetic, {})
        whole = Evaluation(self.reader, batch, columns, arithmetic)
        for name in self.reader.read_columns:
            column = self.reader.columns[name]
            if column.gate is not None and column.missing == "error":
                for i, value in enumerate(columns[name]):
                    if value is None and whole.holds(column.gate, i):
                        raise NotAllowed(name)
        kept = [self.reader.keep is None or whole.holds(self.reader.keep, m[0]) for m in batch.members]
        batch.copies = [int(k) for k in kept]
        return Inside(self.reader, batch, columns, arithmetic, kept), kept, whole

    def advantages(self, batch):
        inside, _, _ = self.evaluation(batch)
        return [inside.at(self.reader.advantage, i).value for i in range(len(batch.groups))]

    def rewards(self, batch):
        """A tuple of values for each rollout."""
        _, _, whole = self.evaluation(batch)
        rows = [[whole.at(node, i) for node in self.reader.shaped.values()] for i in range(len(batch.groups))]
        return [tuple("missing" if v is None else key(v.value) for v in row) for row in rows]

    def breaks(self, name, *groups):
        """Whether the first of these groups, in a batch of them all, breaks a guarantee: a missing one holds."""
        if groups not in self.seen:
            try:
                batch = self.batch(*groups)
                self.seen[groups], _, whole = self.evaluation(batch)
                for i in range(len(batch.groups)):
                    self.seen[groups].at(self.reader.advantage, i)
                    for node in self.reader.shaped.values():
                        whole.at(node, i)
            except (NotAllowed, RolloutError, NoValue):  # the call raises: no group that is trained on
                self.seen[groups] = None
        inside = self.seen[groups]
        if inside is None:
            return False
        found = [inside.at(self.reader.guarantees[name], i) for i in inside.batch.members[0]]
        return any(v is not None and v.value == 0 for v in found)


class Inside(Evaluation):
    """Where `advantage` is what a rollout is given: 0 where nothing was measured, or the group is not kept."""

    def evaluate(self, node, i):
        if node is not self.reader.advantage:
            return super().evaluate(node, i)
        if not self.kept[self.batch.group_of[i]]:
            return self.arithmetic.leaf(Fraction(0))
        return advantage(self, i)


def multiset(values):
    """Equal for groups that are equal but for the order of rollouts."""
    return tuple(key(v) for v in sorted(values, key=digits))


def truth(draft, size):
    """What is so of all groups: numbers of advantage groups and reward groups, shares of groups and rollouts without
    signal (None where a value can be missing). None where a group has no advantage.
    """
    small = Small(draft, draft.text.replace("advantage: " + f'"{draft.advantage}"', f'advantage: "{draft.inner}"'))
    if small.count(size) > MOST:
        return None
    vectors, rewards = set(), set()
    dead = zero = whole = 0
    for kind, members in small.groups(size):
        batch = small.batch((kind, members))
        try:
            values = small.advantages(batch)
            rewards.add(tuple(sorted(small.rewards(batch), key=str)))
        except NotAllowed:
            continue
        except (RolloutError, NoValue):
            return None
        vectors.add(multiset(values))
        orders = math.factorial(size) // math.prod(math.factorial(n) for n in Counter(members).values())
        whole += orders
        dead += orders * (len({key(v) for v in values}) == 1)
        zero += orders * Fraction(sum(v == 0 for v in values), size)
    sure = not any(c.missing == "ignore" or c.gated for c in draft.columns)
    return len(vectors), len(rewards), (dead / whole, float(zero / whole)) if sure else None


def check_counts(draft, spec, size):
    """Holds `simulate` to every group of a size: `exact`, `bound` or `not tried`. Raises Disagreement."""
    from rewardspec.prove.simulate import count_groups

    so = truth(draft, size)
    if so is None:
        return "not tried"
    groups, rewards, shares = so
    got = count_groups(spec.program, "small", size)
    wrong = got.advantage_groups != groups if got.exact else got.advantage_groups > groups
    if wrong:
        raise Disagreement(
            f"groups of {size}: {'' if got.exact else '>= '}{got.advantage_groups} advantage groups, expected {groups}"
        )
    wrong |= got.reward_groups != rewards if got.exact else got.reward_groups > rewards
    if wrong:
        raise Disagreement(
            f"groups of {size}: {'' if got.exact else '>= '}{got.advantage_groups} advantage groups of "
            f"{got.reward_groups} reward groups, expected {groups} of {rewards}"
        )
    if shares is not None and got.signal is not None:
        told = (got.signal.groups_without_signal, got.signal.rollouts_without_signal)
        # what is not decided counts as without signal
        if any(a < b - 1e-9 or (got.signal.exact and a > b + 1e-9) for a, b in zip(told, shares, strict=True)):
            raise Disagreement(f"groups of {size}: shares without signal {told}, expected {shares}")
    return "exact" if got.exact else "bound"


def check_verdicts(draft, spec, sizes, rng):
    """Holds `verify` to every group of these sizes: how often it says what. Raises Disagreement."""
    from rewardspec.prove.verify import verify

    small = Small(draft, eps=None)
    sizes = [size for size in sizes if small.count(size) <= MOST]
    if not sizes:
        return Counter()
    said = Counter()
    for verdict in verify(spec, sizes):
        name, status = verdict.name, verdict.status
        try:
            if verdict.counterexample is not None and not small.breaks(name, shown(small, verdict.counterexample)):
                found = shown(small, verdict.counterexample)
                raise Disagreement(f"`{name}` is refuted with a group that does not break it: {found}")
            broken = first_broken(small, name, sizes, rng)
        except (RolloutError, NoValue):
            said["without a value"] += 1
            continue
        if broken is not None and status == "proved":
            raise Disagreement(f"`{name}` is proved and broken by {broken}")
        if broken is None and status == "refuted" and verdict.counterexample is None:
            raise Disagreement(f"`{name}` is refuted and holds")
        missed = " though a group breaks it" if broken is not None and status != "refuted" else ""
        said[status + missed] += 1
    return said


def shown(small, example):
    """The group of a counterexample."""

    def value(column, v):
        if v is None or column.symbols:
            return v
        return min(column.values, key=lambda d: abs(d - Fraction(v)))

    members = [
        tuple(value(c, example.columns[c.name][i]) if c.name in example.columns else c.values[0] for c in small.fine)
        for i in range(example.size)
    ]
    kind = tuple(value(c, example.group[c.name]) if c.name in example.group else c.values[0] for c in small.coarse)
    return kind, tuple(members)


def first_broken(small, name, sizes, rng, pairs=40):
    """A batch whose first group breaks a guarantee, or None: every group alone, and some beside another."""
    everyone = [group for size in sizes for group in small.groups(size)]
    batches = [(group,) for group in everyone]
    if small.over_batch:
        batches += [tuple(rng.choices(everyone, k=2)) for _ in range(pairs)]
    return next((batch for batch in batches if small.breaks(name, *batch)), None)


__all__ = ["BATCH", "GROUP", "Small", "check_counts", "check_verdicts", "truth"]
