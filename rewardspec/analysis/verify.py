"""Guarantees proved, or refuted by the smallest group that breaks them.

All groups that the declared domains allow are tried, up to the order of rollouts, in one compiled
function; what is close is decided once more in exact arithmetic. eps is read as 0. What the rest of
a batch does to a group is unknown: where it is provably no more than a change of scale (or an
increasing affine map), a guarantee that does not depend on it is decided without it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from math import comb, inf, nan

from rewardspec.analysis.parts import (
    batch_step,
    column_points,
    is_boundary,
    of_rollout,
    over_batch,
    users_of,
    without_batch,
)
from rewardspec.compiler import Spec, deep_stack, load_module
from rewardspec.diagnostics import Report, SpecError
from rewardspec.emit.emitter import emit_module
from rewardspec.ir.checks import demand
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Graph, Node, walk
from rewardspec.ir.lower import ComponentValue, Program, lower
from rewardspec.ops.exact import Inexact
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.spec.declarations import ComponentDeclaration
from rewardspec.syntax.tree import Number
from rewardspec.types import Domain, Level, interval

MOST_GROUPS = 200_000  # of one size that are tried; beyond them as many are drawn
MOST_STATES = 4096  # of one rollout
MOST_EXACT = 20_000  # groups of one size that exact arithmetic decides
NOTHING = 2  # the margin of `all` of nothing, above what a comparison can have
SLACK = 1e-9  # relative: nearer comparisons than this are decided exactly
ROUNDS = 12  # of local search where domains are intervals
_COMPARISONS = {"<": 1, "<=": 1, ">": -1, ">=": -1, "==": 0, "!=": 0}
MOMENTS = (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))  # where schedules are looked at

PROVED, REFUTED, NOT_REFUTED, UNDECIDED = "proved", "refuted", "not refuted", "undecided"
BROKEN_OFF = "broken off"
OF_NOTHING = "no group meets its condition"


@dataclass(frozen=True)
class Counterexample:
    """A group that breaks a guarantee.

    columns: what was measured, and shaped: what came of it, each a value for every rollout. group: columns
    of group level and the moment of training. advantages: less the step over the batch. breaking: rollouts
    that the broken comparison looks at.
    """

    columns: dict[str, list[float | str | None]]
    group: dict[str, float | str | None]
    shaped: dict[str, list[float | None]]
    advantages: list[float]
    breaking: list[int]

    @property
    def size(self) -> int:
        return len(self.advantages)


@dataclass
class Verdict:
    """What is known of a guarantee. sizes: of the groups that were looked at, `groups` of them."""

    name: str
    status: str
    sizes: list[int] = field(default_factory=list)
    groups: int = 0
    reason: str = ""
    counterexample: Counterexample | None = None

    def to_json(self) -> dict:
        found = {"name": self.name, "status": self.status, "sizes": self.sizes, "groups": self.groups}
        if self.reason:
            found["reason"] = self.reason
        if self.counterexample is not None:
            found["counterexample"] = {**vars(self.counterexample), "size": self.counterexample.size}
        return found


def verify(
    spec: Spec, sizes: Sequence[int], progress: Callable[[str, int], None] | None = None, seed: int = 0
) -> list[Verdict]:
    """A verdict on every guarantee of a spec for groups of these sizes. An interrupt leaves what is known."""
    question = Question.of(spec)
    verdicts = {name: Verdict(name, PROVED) for name in question.program.guarantees}
    for name, node in question.program.guarantees.items():
        reason = question.undecidable(node)
        if reason:
            verdicts[name] = Verdict(name, UNDECIDED, reason=reason)
    of_nothing = set(verdicts)
    try:
        for size in sizes:
            left = [name for name, verdict in verdicts.items() if verdict.status in (PROVED, NOT_REFUTED)]
            if not left:
                break
            for name, (broken, count, complete, asks) in question.ask(left, size, seed).items():
                verdict = verdicts[name]
                if asks:
                    of_nothing.discard(name)
                verdict.sizes.append(size)
                verdict.groups += count
                if broken is not None:
                    verdict.status, verdict.counterexample, verdict.reason = REFUTED, broken, ""
                elif not complete:
                    verdict.status, verdict.reason = NOT_REFUTED, question.why_not(size)
                if progress is not None:
                    progress(name, size)
    except KeyboardInterrupt:
        for verdict in verdicts.values():
            if verdict.status in (PROVED, NOT_REFUTED) and verdict.sizes != list(sizes):
                verdict.status, verdict.reason = NOT_REFUTED, BROKEN_OFF
    for name in of_nothing:
        if verdicts[name].status == PROVED and verdicts[name].groups:
            verdicts[name].reason = OF_NOTHING
    return list(verdicts.values())


@dataclass
class Question:
    """A spec as `verify` looks at it: its guarantees as nodes of a graph with eps 0 and without the batch."""

    spec: Spec
    program: Program
    root: Node  # the advantage less the step over the batch
    step: str  # what that step may do: none, scale, shift
    most_tried: int = 16 * MOST_STATES  # rows of columns that are looked through for what one rollout can be

    @classmethod
    def of(cls, spec: Spec, most_tried: int = 16 * MOST_STATES) -> Question:
        report = Report()
        with deep_stack():
            declared = replace(spec.declarations, given={**spec.declarations.given, "eps": Fraction(0)})
            program = lower(declared, report, _told)
        if program is None:
            raise SpecError(report.sorted())
        root = _told(program.graph, program.advantage)
        return cls(spec, program, root, batch_step(program.graph, program.advantage), most_tried)

    def __post_init__(self):
        program = self.program
        shaped = [component.shaped for component in program.components]
        right = [] if program.outcome is None else [program.outcome.holds, program.outcome.fails]
        self.nodes = [self.root, *shaped, *program.guarantees.values(), *right]
        fine, coarse, complete = column_points(program, self.nodes)
        self.fine = {node: list(points) for node, points in fine.items()}
        self.coarse = {name: list(points) for name, points in coarse.items()}
        self.moments, self.all_moments = moments_of(self.nodes)
        self.complete = complete and self.all_moments
        self.intervals = not complete

    def why_not(self, size: int) -> str:
        if self.intervals:
            return "some domains are intervals: searched, not exhausted"
        if not self.complete:
            return f"schedules were looked at in {len(self.moments)} moments"
        return f"too many groups of {size} to try them all"

    def undecidable(self, node: Node) -> str:
        """Why the rest of the batch could decide a guarantee; nothing where it cannot."""
        if any(over_batch(n) for n in walk([node, self.root])):
            return "it depends on the rest of the batch"
        if self.step != "none" and not _indifferent(self.program.graph, node, self.root, self.step):
            return "it depends on the scale that the step over the batch gives the advantage"
        return ""

    # States --------------------------------------------------------------------------------------

    def states(self) -> tuple[list[tuple], bool]:
        """What one rollout can measure, and whether that is all: one of those that lead to the same values."""
        return self._states

    @cached_property
    def _states(self) -> tuple[list[tuple], bool]:
        points = list(self.fine.values())
        count = 1
        for values in points:
            count *= len(values)
        if count <= self.most_tried:
            rows, complete = list(product(*points)), True
        else:
            draw = random.Random(0)
            few = min(MOST_STATES, self.most_tried // 8)
            rows = list(zip(*(draw.choices(values, k=few) for values in points), strict=True))
            complete = False
        key = self._rollout_values(rows)
        kept: dict = {}
        for row, values in zip(rows, key, strict=True):
            kept.setdefault(values, row)
        found = list(kept.values())
        if len(found) > MOST_STATES:
            return random.Random(0).sample(found, MOST_STATES), False
        return found, complete

    def _rollout_values(self, rows: list[tuple]) -> list[tuple]:
        """What of each rollout is ever asked for: the values of its own nodes, where the gates before them are open."""
        nodes = walk(self.nodes)
        own, users = of_rollout(nodes), users_of(nodes)
        ends = [n for n in nodes if n in own and n.op != "const" and is_boundary(n, own, users, self.nodes)]
        asked = demand(self.program.graph, self.nodes, nodes)
        gates = {n: [[c for c in path if c in own] for path in asked[n]] for n in ends}
        wanted = list(dict.fromkeys([*ends, *(c for paths in gates.values() for path in paths for c in path)]))
        if any(n.op == "given" for n in walk(wanted)):
            return rows
        values: dict[Node, list] = {}
        try:
            for n in wanted:
                read = [(at, c) for at, c in enumerate(self.fine) if c in walk([n])]
                of_each = [tuple(row[at] for at, _ in read) for row in rows]
                kinds = list(dict.fromkeys(of_each))
                found = GroupEvaluator(n, [c for _, c in read], {}, floats=False)(kinds, {})
                value_of = dict(zip(kinds, found, strict=True))
                values[n] = [value_of[kind] for kind in of_each]
        except Inexact:
            return rows
        return [
            tuple(
                values[n][i] if any(all(values[c][i] == 1 for c in path) for path in gates[n]) else "never asked for"
                for n in ends
            )
            for i in range(len(rows))
        ]

    def groups(self, size: int, seed: int) -> tuple[list[tuple[tuple, dict, dict]], bool]:
        """(rollouts, columns of the group, moment) of all groups, or of as many as are tried; whether these are all."""
        states, complete = self.states()
        kinds = [
            (dict(zip(self.coarse, values, strict=True)), moment)
            for values in product(*self.coarse.values())
            for moment in self.moments
        ]
        if comb(len(states) + size - 1, size) * len(kinds) <= MOST_GROUPS:
            found = [(m, group, moment) for group, moment in kinds for m in combinations_with_replacement(states, size)]
            return found, complete and self.complete
        draw = random.Random(seed)
        few = [tuple(draw.choices(draw.sample(states, min(3, len(states))), k=size)) for _ in range(MOST_GROUPS // 20)]
        many = [tuple(draw.choices(states, k=size)) for _ in range(MOST_GROUPS // 20)]
        return [(members, *draw.choice(kinds)) for members in [*few, *many]], False

    # Answers -------------------------------------------------------------------------------------

    def ask(
        self, names: Sequence[str], size: int, seed: int
    ) -> dict[str, tuple[Counterexample | None, int, bool, bool]]:
        """For each guarantee a group that breaks it, if one was found, how many were tried, whether all, whether it
        asked anything of one of them.
        """
        groups, complete = self.groups(size, seed)
        answers: dict[str, tuple[Counterexample | None, int, bool, bool]] = {}
        found = self.margins(names, groups, size)
        for name in names:
            more = 0
            broken, all_decided = self._first_broken(name, groups, found[name], size)
            if broken is None and self.intervals:
                broken, more = self._search(name, groups, found[name], size, seed)
            asks = any(margin < NOTHING for margin in found[name])
            answers[name] = (broken, len(groups) + more, complete and all_decided, asks)
        return answers

    def _first_broken(self, name: str, groups: list, margins: list[float], size: int):
        node = self.program.guarantees[name]
        suspects = [i for i, margin in enumerate(margins) if not margin > SLACK]
        suspects.sort(key=lambda i: (len(set(groups[i][0])), i))  # the plainest first
        for i in suspects[:MOST_EXACT]:
            if self._is_broken(node, groups[i], margins[i]):
                return self.counterexample(node, groups[i]), True
        return None, len(suspects) <= MOST_EXACT

    def _is_broken(self, node: Node, group: tuple, margin: float) -> bool:
        members, columns, moment = group
        for floats in (False, True):
            rollouts = [tuple(float(v) if floats and v is not None else v for v in m) for m in members]
            try:
                values = GroupEvaluator(node, list(self.fine), moment, floats)(rollouts, columns)
            except Inexact:
                continue
            if floats:  # no exact value: what is too close to call does not count as broken
                return margin < -SLACK
            return any(v == 0 for v in values)
        raise AssertionError("floats have a value for everything")

    def margins(self, names: Sequence[str], groups: list, size: int) -> list:
        """By how much each group keeps each guarantee: clearly kept above SLACK, broken below -SLACK."""
        import numpy as np  # checking a spec looks at groups too, and has no need of it

        result: dict[str, list[float]] = {name: [float("nan")] * len(groups) for name in names}
        by_moment: dict[tuple, list[int]] = {}
        for i, (_, _, moment) in enumerate(groups):
            by_moment.setdefault(tuple(moment.items()), []).append(i)
        for moment, places in by_moment.items():
            fn = self._function(tuple(names))
            columns: dict[str, object] = {}
            for at, node in enumerate(self.fine):
                symbols = node.domain.symbols
                values = [m[at] for i in places for m in groups[i][0]]
                columns[node.attributes[0]] = _column(values, symbols)
            for name in self.coarse:
                symbols = self.program.columns[name].domain.symbols
                columns[name] = _column([groups[i][1][name] for i in places for _ in range(size)], symbols)
            known = dict(moment)
            step = known.get("step", known.get("progress"))
            total = known.get("total_steps", Fraction(1) if "progress" in known else None)
            out = fn(
                columns,
                size,
                step=None if step is None else float(step),
                total_steps=None if total is None else float(total),
            )
            for name in names:
                place = list(self.program.guarantees).index(name)
                least = out.rewards[f"margin_{place}"].numpy().reshape(len(places), size)
                least = np.nan_to_num(least, nan=inf).min(1).tolist()  # a margin that is missing is no breach
                for i, value in zip(places, least, strict=True):
                    result[name][i] = value
        return result

    def _function(self, names: tuple[str, ...]) -> Callable:
        """The compiled function whose rewards are the margins of guarantees."""
        cache = self.__dict__.setdefault("_functions", {})
        if names not in cache:
            graph, order = self.program.graph, list(self.program.guarantees)
            values = []
            for name in names:
                margin = _margin(graph, self.program.guarantees[name])
                values.append(ComponentValue(f"margin_{order.index(name)}", graph.spread(margin), graph.const(1)))
            columns = {
                name: replace(column, gated=column.gated or column.missing == "ignore")
                for name, column in self.program.columns.items()
            }
            program = replace(
                self.program,
                components=values,
                advantage=graph.const(0, Level.ROLLOUT),
                keep=None,
                copies=None,
                columns=columns,
            )
            with deep_stack():
                source = emit_module(program, "margins", "", "", "")
            cache[names] = load_module(source, f"<margins of {self.spec.name}>").advantages
        return cache[names]

    def _search(self, name: str, groups: list, margins: list[float], size: int, seed: int):
        """Local search from the groups that keep a guarantee least: columns with intervals are moved."""
        draw = random.Random(seed + size)
        nodes = list(self.fine)
        moving = [i for i, node in enumerate(nodes) if node.domain.values is None]
        best = sorted(range(len(groups)), key=lambda i: margins[i])[:60]
        pool = [(margins[i], groups[i]) for i in best]
        tried, reach = 0, 0.5
        for _ in range(ROUNDS if moving else 0):
            fresh = []
            for _, (members, columns, moment) in pool:
                for _ in range(8):
                    moved = [list(m) for m in members]
                    for m in draw.sample(moved, draw.randint(1, min(3, size))):
                        at = draw.choice(moving)
                        m[at] = _moved(m[at], nodes[at].domain, reach, draw)
                    fresh.append((tuple(tuple(m) for m in moved), columns, moment))
            tried += len(fresh)
            found = self.margins([name], fresh, size)[name]
            for margin, group in sorted(zip(found, fresh, strict=True), key=lambda pair: pair[0]):
                if margin < -SLACK and self._is_broken(self.program.guarantees[name], group, margin):
                    return self.counterexample(self.program.guarantees[name], self._plainer(name, group)), tried
                break
            pool = sorted([*pool, *zip(found, fresh, strict=True)], key=lambda pair: pair[0])[:60]
            reach *= 0.7
        return None, tried

    def _plainer(self, name: str, group: tuple) -> tuple:
        """A group that breaks a guarantee as well, with fewer digits."""
        node = self.program.guarantees[name]
        for digits in (0, 1, 2, 3):
            members = tuple(
                tuple(
                    v if v is None or n.domain.values is not None else Fraction(round(v, digits))
                    for n, v in zip(self.fine, m, strict=True)
                )
                for m in group[0]
            )
            near = (members, *group[1:])
            inside = all(v is None or v in n.domain for m in members for n, v in zip(self.fine, m, strict=True))
            if inside and self._is_broken(node, near, self.margins([name], [near], len(members))[name][0]):
                return near
        return group

    # Counterexamples -----------------------------------------------------------------------------

    def counterexample(self, node: Node, group: tuple) -> Counterexample:
        members, columns, moment = group

        def values(n: Node) -> list[float | None]:
            rows = [tuple(None if v is None else float(v) for v in m) for m in members]
            return GroupEvaluator(n, list(self.fine), moment, floats=True)(rows, columns)

        shown = {n.attributes[0]: [_shown(m[i], n) for m in members] for i, n in enumerate(self.fine)}
        whole = {name: _shown(value, self._column_node(name)) for name, value in columns.items()}
        whole |= {name: float(value) for name, value in moment.items()}
        shaped = {c.name: values(c.shaped) for c in self.program.components}
        for name, found in shaped.items():  # what a closed gate does not ask for might as well not be there
            if name in shown:
                shown[name] = [None if s is None else x for x, s in zip(shown[name], found, strict=True)]
        return Counterexample(shown, whole, shaped, values(self.root), _breaking(node, values))

    def _column_node(self, name: str) -> Node:
        return next(n for n in walk(self.nodes) if n.op == "column" and n.attributes[0] == name)


def _told(graph: Graph, advantage: Node) -> Node:
    """What a guarantee is told of the advantage: the step over the batch is left out, and so is how far it may go."""
    root, _ = without_batch(graph, advantage)
    if batch_step(graph, advantage) == "none":
        return root
    return graph.node("required", (root,), (), Level.ROLLOUT, interval(-inf, inf))


def _column(values: list, symbols: tuple[str, ...] | None):
    import numpy as np

    if symbols is not None:
        return [None if v is None else symbols[int(v)] for v in values]
    return np.array([nan if v is None else float(v) for v in values])


def _shown(value, node: Node):
    if value is None:
        return None
    return node.domain.symbols[int(value)] if node.domain.symbols else float(value)


def _moved(value, domain: Domain, reach: float, draw: random.Random) -> Fraction:
    """A value of an interval near `value`."""
    x = 0.0 if value is None else float(value)
    span = float(domain.hi - domain.lo) if domain.bounded else max(1.0, 2 * abs(x))
    x += draw.gauss(0, reach * span) if draw.random() < 0.9 else draw.uniform(-span, span)
    return Fraction(min(max(x, float(domain.lo)), float(domain.hi))).limit_denominator(10**6)


def moments_of(nodes: Sequence[Node]) -> tuple[list[dict], bool]:
    """Values of `step`, `progress` and `total_steps` to look at, and whether they stand for all."""
    order = walk(nodes)
    used = {
        n.attributes[0]: n for n in order if n.op == "given" and n.attributes[0] in ("step", "progress", "total_steps")
    }
    if not used:
        return [{}], True
    if set(used) == {"step"}:
        users = users_of(order)[used["step"]]
        limits = [a.constant for u in users for a in u.args if a is not used["step"]]
        if all(u.op in _COMPARISONS for u in users) and None not in limits:
            marks = sorted({Fraction(0), *(x + d for x in limits for d in (-1, 0, 1) if x + d >= 0)})
            return [{"step": mark} for mark in marks], True  # steps between two marks are compared alike
        limits = [x for x in limits if x is not None]
        marks = sorted({Fraction(0), Fraction(1), Fraction(1000), *(x for x in limits if x >= 0)})
        return [{"step": mark} for mark in marks], False
    total = Fraction(1000)
    return [{"step": p * total, "total_steps": total, "progress": p} for p in MOMENTS], False


# Margins -----------------------------------------------------------------------------------------


def _margin(graph: Graph, node: Node) -> Node:
    """A number that is above 0 where a condition holds and below 0 where it fails; 0 where it is close.

    Relative to the size of what is compared, so that one slack fits all. Missing where nothing is compared.
    """
    if node.boolean and _is_plain(node):
        return graph.if_(node, graph.const(1), graph.const(-1))
    match node.op, node.args:
        case "not", (a,):
            return graph.apply("neg", _margin(graph, a))
        case "and", (a, b):
            return _both(graph, "minimum", _margin(graph, a), _margin(graph, b))
        case "or", (a, b):
            return _both(graph, "maximum", _margin(graph, a), _margin(graph, b))
        case "spread", (a,):
            return graph.spread(_margin(graph, a), node.level)
        case (("any" | "all"), (a, where, *by)) if not by:
            reduction = "max" if node.op == "any" else "min"
            empty = graph.const(-NOTHING if node.op == "any" else NOTHING)
            return graph.coalesce(graph.reduce(reduction, _margin(graph, a), where, None, *node.attributes), empty)
        case op, (a, b) if op in _COMPARISONS:
            gap = graph.apply("-", b, a) if _COMPARISONS[op] >= 0 else graph.apply("-", a, b)
            size = graph.apply("+", graph.apply("abs", a), graph.apply("abs", b))
            scale = graph.apply("maximum", size, graph.const(1))
            if op in ("==", "!="):
                gap = graph.apply("abs", gap)
                gap = gap if op == "!=" else graph.apply("neg", gap)
            return graph.apply("/", gap, scale)
    return graph.if_(node, graph.const(1), graph.const(-1))


def _is_plain(node: Node) -> bool:
    """Whether floats decide a condition as real numbers would: nothing in it was computed, only picked and compared."""
    picked = ("column", "const", "missing", "if", "present", "coalesce", "required", "spread", "and", "or", "not")
    picked += ("min", "max", "any", "all", "count", "minimum", "maximum", *_COMPARISONS)
    return all(n.op in picked for n in walk([node]))


def _both(graph: Graph, op: str, a: Node, b: Node) -> Node:
    """The lesser (or greater) of two margins, either of which may be missing."""
    return graph.coalesce(graph.apply(op, a, b), graph.coalesce(a, b))


def _breaking(node: Node, values: Callable[[Node], list]) -> list[int]:
    """Rollouts that a broken comparison looks at: where it fails, or where its least and greatest are."""
    found: Counter = Counter()
    for n in walk([node]):
        if n.op not in _COMPARISONS:
            continue
        if n.level is Level.ROLLOUT:
            continue
        for side in n.args:
            side = side.args[0] if side.op in ("spread", "neg") else side
            if side.op in ("min", "max"):
                x, where = values(side.args[0]), values(side.args[1])
                (end,) = set(values(side))
                found.update(i for i, v in enumerate(x) if v is not None and v == end and where[i] == 1)
    if not found:
        last = values(node)
        found.update(i for i, v in enumerate(last) if v == 0 and node.level is Level.ROLLOUT)
    return sorted(found)


# The batch ---------------------------------------------------------------------------------------


def _indifferent(graph: Graph, node: Node, root: Node, step: str) -> bool:
    """Whether a condition is the same when `root` is scaled by a positive number (and shifted)."""
    kinds: dict[Node, str | None] = {}
    for n in walk([node]):
        kinds[n] = _kind(n, root, step, kinds)
    return kinds[node] == "free"


def _kind(n: Node, root: Node, step: str, kinds: Mapping[Node, str | None]) -> str | None:
    """How a node goes with the advantage: free of it, "scaled" with it, "moved" (scaled and shifted), or None."""
    if n is root:
        return "scaled" if step == "scale" else "moved"
    inner = [kinds.get(a) for a in n.args]
    if all(k == "free" for k in inner):
        return "free"
    if None in inner:
        return None
    apart = {k for k in inner if k != "free"}
    kind = apart.pop() if len(apart) == 1 else None
    free = [a for a, k in zip(n.args, inner, strict=True) if k == "free"]
    if kind is None:
        return None
    if n.op in _COMPARISONS:
        zero = all(a.constant == 0 for a in free)
        return "free" if zero and (not free or kind == "scaled") else None
    if n.op in ("minimum", "maximum"):
        return kind if all(a.constant == 0 for a in free) and (not free or kind == "scaled") else None
    if n.op in REDUCTIONS and inner[0] == kind and all(k == "free" for k in inner[1:]):
        if n.op in ("min", "max", "mean", "quantile"):
            return kind
        if n.op in ("std", "std_others"):
            return "scaled"
        if n.op == "rank":
            return "free"
        return "scaled" if n.op == "sum" and kind == "scaled" else None
    if n.op == "present":
        return "free"
    if n.op in ("if", "coalesce", "spread", "required"):
        choices = inner[1:] if n.op == "if" else inner
        same = all(
            k == kind or (a.constant == 0 and kind == "scaled") or a.op == "missing"
            for a, k in zip(n.args[1:] if n.op == "if" else n.args, choices, strict=True)
        )
        return kind if same and (n.op != "if" or inner[0] == "free") else None
    if n.op == "-" and inner == [kind, kind]:
        return "scaled"
    if kind == "scaled":
        if n.op in ("+", "-", "sum_components") and not free:
            return kind
        if n.op in ("neg", "abs") or (n.op == "*" and len(free) == 1) or (n.op == "/" and inner[1] == "free"):
            return kind
        if n.op == "/" and inner == ["scaled", "scaled"]:
            return "free"
    return None


# Weights -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """The largest weight up to which all guarantees hold. attained: whether they hold at it, too.

    unbounded: nothing breaks them up to `weight`. none: they do not hold at weight 0 either.
    """

    component: str
    weight: float
    attained: bool
    unbounded: bool = False
    none: bool = False


def with_weight(spec: Spec, component: str, weight: Fraction) -> Spec:
    """The spec with another weight for a component. Raises ValueError for a component that is not there."""
    declared = spec.declarations
    if component not in declared.components:
        raise ValueError(f"the spec has no component `{component}`; there are {', '.join(declared.components)}")
    old = declared.components[component]
    new = ComponentDeclaration(old.name, old.span, old.value, Number(old.span, weight), old.when)
    report = Report()
    declared = replace(declared, components={**declared.components, component: new})
    with deep_stack():
        program = lower(declared, report)
    if program is None:
        raise SpecError(report.sorted())
    return Spec(spec.source, declared, program, spec.diagnostics)


def solve_weight(spec: Spec, component: str, sizes: Sequence[int], digits: int = 9, most: int = 2**20) -> Solution:
    """The largest weight of a component for which no guarantee is broken in groups of these sizes, by bisection."""

    def holds(weight: Fraction) -> bool:
        return all(v.status in (PROVED, NOT_REFUTED) for v in verify(with_weight(spec, component, weight), sizes))

    if not holds(Fraction(0)):
        return Solution(component, 0.0, False, none=True)
    low, high = Fraction(0), Fraction(1)
    while holds(high):
        low, high = high, 2 * high
        if high > most:
            return Solution(component, float(low), True, unbounded=True)
    while high - low > Fraction(1, 10**digits) * max(high, 1):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    near = high.limit_denominator(1000)
    attained = abs(near - high) < Fraction(2, 10**digits) and holds(near)
    return Solution(component, float(near if attained else high), attained)
