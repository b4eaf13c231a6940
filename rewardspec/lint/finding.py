"""Findings: the list of them, and what each looks at."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Map
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from inspect import cleandoc
from itertools import product
from math import inf, prod

from rewardspec.groups.batch import over_batch, without_batch
from rewardspec.groups.parts import columns_of
from rewardspec.groups.points import points_of, users_of
from rewardspec.groups.question import Question
from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.language.prelude import prelude
from rewardspec.lint.errors import OF_ALLOW, PAGES
from rewardspec.lint.outcome import Outcome, declared_outcome, most_like_an_outcome, named_outcome, names_of, parts
from rewardspec.lower.lower import Lowering, lower
from rewardspec.lower.values import Skip
from rewardspec.ops.domain import Level
from rewardspec.ops.exact import Inexact
from rewardspec.ops.real import UNKNOWN
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.spec import Spec, deep_stack
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation
from rewardspec.syntax.yaml import Mapping
from rewardspec.text.diagnostics import Diagnostic, Report, SpecError, did_you_mean, shorten
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Span

SIZES = (2, 3)  # of the groups that are looked at
MOST_LOOKED_AT = 600  # groups of one size; of more of them a few are looked at, for what can be shown by one
FEW = 61
MOST_NODES = 40_000  # in all of these few
MOST_TRIED = 4096  # rows of columns that are looked through for what one rollout can be
FAR = 10**6
NO_OUTCOME = "nothing says which rollouts are right; declare it, `outcome: correct >= 1`"
OF_BATCH = "the rest of the batch decides"
NOT_EXACT = "some values have no exact form, and are too close to call"
NO_LENGTH = "how long the run is is not known; `--total-steps N` says it"
MOST_ROLLOUTS = 1500  # that are tried where one rollout shows it

# Findings that no one component draws: only the spec's own `allow:` is about them.
OF_SPEC = frozenset(
    {
        "advantage-undefined",
        "dead-groups",
        "group-of-one",
        "keep-dead-groups",
        "keep-never-holds",
        "no-baseline",
        "phantom-gradient",
        "sum-merges-groups",
        "wrong-above-right",
    }
)


@dataclass(frozen=True)
class Finding:
    """One thing to find. `page` explains it: what it does, why it is bad, what to write instead, where it happened."""

    code: str
    page: str
    look: Callable[[Facts], Iterable[Diagnostic]]


FINDINGS: dict[str, Finding] = {}


def finding(code: str):
    """Declares a function of `Facts` that yields diagnostics; its docstring is the page."""

    def declare(look):
        FINDINGS[code] = Finding(code, cleandoc(look.__doc__), look)
        return look

    return declare


@dataclass(frozen=True)
class Run:
    """What the caller states of a training run; findings that need it are silent without.

    rates: how often columns or components with two values succeed. sizes: of its groups.
    """

    rates: Map[str, Fraction] = field(default_factory=dict)
    sizes: Sequence[int] = ()
    total_steps: int | None = None


class Facts:
    """A spec, and what several findings ask about it; each is worked out once."""

    def __init__(self, spec: Spec, run: Run = Run()):
        self.spec, self.run = spec, run
        self.left_out: dict[str, list[str]] = {}  # why something was not looked at, or not everywhere: findings
        self.program, self.declared, self.document = spec.program, spec.declarations, spec.document
        self.root_node = spec.declarations.root

    # Places --------------------------------------------------------------------------------------

    def place(self, section: str, name: str, key: str | None = None) -> Span:
        """The key of a component (or signal), or the value of one of its keys."""
        whole = self.root_node.get(section)
        assert isinstance(whole, Mapping), section
        node = whole.get(name)
        if key is not None and isinstance(node, Mapping) and node.get(key) is not None:
            return node.get(key).span
        return whole.key(name).span

    def component_place(self, name: str, key: str | None = None) -> Span:
        return self.place("components", name, key)

    def advantage_place(self) -> Span:
        return self.root_node.get("advantage").span

    def own_place(self, node: Node) -> Span:
        """The text of this spec that caused a node; the whole advantage, where that is in the prelude."""
        for graph in (self.program.graph, self.question.program.graph):
            span = graph.spans.get(node)
            if span is not None and span.source is self.spec.source:
                return span
        return self.advantage_place()

    def warn(self, code: str, message: str, span: Span, **rest) -> Diagnostic:
        return Diagnostic(code, message, span, severity="warning", **rest)

    def leave_out(self, code: str, reason: str) -> None:
        """Say that a finding was not looked at, or not everywhere, and why."""
        codes = self.left_out.setdefault(reason, [])
        if code not in codes:
            codes.append(code)

    # The spec ------------------------------------------------------------------------------------

    @cached_property
    def shaped(self) -> dict[str, Node]:
        return {c.name: c.shaped for c in self.program.components}

    @cached_property
    def outcome(self) -> Outcome | None:
        """What says that a rollout is right: as declared, else as guarantees say, else by names and gates."""
        stated = declared_outcome(self.declared, self.program)
        return stated or named_outcome(self.declared, self.program, self._gating)

    @cached_property
    def graded_outcome(self) -> str | None:
        """A component that is called an outcome, or gates others, and has more values than right and wrong."""
        if self.outcome is not None:
            return None
        graded = [n for n, node in self.shaped.items() if node.domain.values is None or len(node.domain.values) > 2]
        graded = [n for n in graded if self.shaped[n].level is Level.ROLLOUT]
        return most_like_an_outcome(self.declared, self.program, graded, self._gating)

    @cached_property
    def _gating(self) -> dict[str, bool]:
        """Whether a component gates others: they count only where it has the greatest of its values."""
        gated = {name: self.gate_names(name) for name in self.shaped}
        return {
            name: any(
                name in gates and other != name and self._counts_at_top(other, name) for other, gates in gated.items()
            )
            for name in self.shaped
        }

    def _counts_at_top(self, name: str, other: str) -> bool:
        top = self.shaped[other].domain.hi
        if isinstance(top, float):
            return False
        span = self.advantage_place()
        return self.counts_only_where(name, Operation(span, ">=", (Name(span, other), Number(span, top))))

    def right_in(self, group: tuple) -> list[bool | None] | None:
        """Which rollouts of a group are right, None for one of which that is not known; None where it is of all."""
        truth = self.question.program.outcome
        found = [self.values(node, group) for node in (truth.holds, truth.fails)]
        if None in found:
            return None
        return [True if h == 1 else False if f == 1 else None for h, f in zip(*found, strict=True)]

    def counts_only_where(self, name: str, condition: Expr) -> bool:
        """Whether a gate of a component is open only where a condition holds."""
        lowering = Lowering(self.declared, Report())
        for gate in self.gates(name):
            if not self.names(condition) & self.names(gate):
                continue
            try:
                nodes = [lowering.condition(e, lowering.user) for e in (gate, condition)]
                tried = some_rollouts(nodes)
                found = [GroupEvaluator(n, tried[0], {})(tried[1], {}) for n in nodes] if tried else [[1], [0]]
            except (Skip, Inexact):
                continue
            if all(opens == 0 or holds == 1 for opens, holds in zip(*found, strict=True)):
                return True
        return False

    def pays(self, name: str) -> bool:
        """Whether what a component adds to a weighted sum can be above 0. What never is, is a penalty."""
        weight = next(c.weight for c in self.program.components if c.name == name).domain
        value = self.shaped[name].domain
        return (weight.hi > 0 and value.hi > 0) or (weight.lo < 0 and value.lo < 0)

    @cached_property
    def paid_where_wrong(self) -> list[str]:
        """Components that are seen to be above 0, and less elsewhere, in rollouts that are not right."""
        return [name for name in self.shaped if self.pays(name) and self._is_paid_where_wrong(name)]

    def _is_paid_where_wrong(self, name: str) -> bool:
        program = self.question.program
        component = next(c for c in program.components if c.name == name)
        fails = program.outcome.fails
        tried = some_rollouts([component.shaped, fails], far=True)
        if tried is not None:
            seen = [_in_rollouts(n, *tried) for n in (component.shaped, fails)]
            worth = [{v for v, f in zip(*seen, strict=True) if f == 1 and v is not None}]
        else:
            groups = [group for some in self.some_groups.values() for group in some]
            seen = [[self.values(n, group) for n in (component.shaped, fails)] for group in groups]
            worth = [
                {v for v, f in zip(*both, strict=True) if f == 1 and v is not None} for both in seen if None not in both
            ]
        signs = [s for s in (1, -1) if (component.weight.domain.hi > 0 if s > 0 else component.weight.domain.lo < 0)]
        values = set().union(*worth)
        return any(max((s * v for v in values), default=0) > 0 and len(values) > 1 for s in signs)

    def gate_help(self, name: str, outcome: Outcome) -> str:
        """How to let a component count only where a rollout is right, as text that the language takes."""
        lowest, condition = self.shaped[name].domain.lo, outcome.condition
        if any(name in self._behind(read) for read in outcome.reads):
            return f"count `{name}` only in answers that are right"  # a gate on what it is part of would be a circle
        if self.declared.components[name].when is not None:
            return f"add `and {outcome.beside}` to its `when`"
        if lowest >= 0:
            return f"add `when: {condition}`"
        return f"add `when: {condition}` and `otherwise: {format_number(lowest) if lowest > -inf else 'ignore'}`"

    def _behind(self, name: str) -> set[str]:
        """The components that one is made of, through others too, and itself."""
        found: set[str] = set()
        queue = [name]
        while queue:
            name = queue.pop()
            declaration = self.declared.components.get(name)
            if name in found or declaration is None:
                continue
            found.add(name)
            for expr in (declaration.value, declaration.when):
                queue += self.names(expr) if expr is not None else ()
        return found

    @property
    def gate_rest_help(self) -> str:
        """How to let nothing be paid where no rollout is right; penalties are not asked to be gated."""
        own = self.outcome.reads
        paid = [name for name in self.paid_where_wrong if name not in own]
        others = [name for name, node in self.shaped.items() if name not in own and node.domain.constant is None]
        below = any(self.shaped[name].domain.lo < 0 for name in paid)
        what = "what else is paid" if paid else "the rest"
        if paid and set(paid) >= set(others):
            what = "the rest"
        elif 0 < len(paid) <= 3:
            what = " and ".join(f"`{name}`" for name in paid)
        return (
            f"gate {what} with `when: {self.outcome.condition}`"
            + below * " (and `otherwise:`, where it can be below 0)"
        )

    def gates(self, component: str) -> list[Expr]:
        """The conditions of a component: its `when`, or those of its stages."""
        declaration = self.declared.components[component]
        found = [declaration.when] if declaration.when is not None else []
        if self.document.components[component].stages and declaration.value is not None:
            found += [e.condition for e in parts(declaration.value) if isinstance(e, If)]
        return found

    def gate_names(self, component: str) -> set[str]:
        """Components and signals that the gates of a component read, through definitions too."""
        return {n for gate in self.gates(component) for n in self.names(gate)}

    def names(self, expr: Expr) -> set[str]:
        """Names of an expression, those of definitions replaced by what they stand for."""
        return names_of(self.declared, expr)

    def own_expressions(self) -> Iterator[tuple[Expr, Expr]]:
        """(an expression of the spec's own text, each of its parts), functions with parameters left out."""
        declared = self.declared
        wholes = [expr for c in declared.components.values() for expr in (c.when, c.value, c.weight)]
        wholes += [definition.body for definition in declared.values.values()]
        wholes += [declared.keep, declared.refill, declared.advantage]
        seen: set[tuple[Span, type]] = set()
        for whole in wholes:
            for part in parts(whole) if whole is not None else ():
                if part.span.source is self.spec.source and (part.span, type(part)) not in seen:
                    seen.add((part.span, type(part)))
                    yield whole, part

    @cached_property
    def reads_weights(self) -> bool:
        """Whether anything that decides advantages reads weights, through definitions of the spec and the prelude."""
        declared, shipped = self.declared, prelude(self.declared.dialect)
        queue = [(expr, False) for expr in (declared.advantage, declared.keep, declared.refill) if expr is not None]
        seen: set[tuple[str, bool]] = set()
        while queue:
            expr, inside = queue.pop()
            for part in parts(expr):
                called = isinstance(part, Call)
                name = part.function.text if called else part.text if isinstance(part, Name) else None
                if name is None or (name, called, inside) in seen:
                    continue
                if name == "weights" and not called:
                    return True
                seen.add((name, called, inside))
                if not called and not inside and (name in declared.components or name in declared.columns):
                    continue
                own = {} if inside else declared.functions if called else declared.values
                found = own.get(name) or (shipped.functions if called else shipped.values).get(name)
                if found is not None and found.body is not None:
                    queue.append((found.body, found.prelude))
        return False

    @cached_property
    def divides_by_eps(self) -> bool:
        """Whether the spec's own text names eps, so that its meaning depends on it."""
        return any(isinstance(part, Name) and part.text == "eps" for _, part in self.own_expressions())

    # Small groups --------------------------------------------------------------------------------

    @cached_property
    def asked(self) -> Spec:
        """The spec with its outcome declared, where that is known from elsewhere."""
        if self.outcome is None or self.outcome.how == "declared":
            return self.spec
        return replace(self.spec, declarations=replace(self.declared, outcome=self.outcome.expr))

    @cached_property
    def question(self) -> Question:
        found = Question.of(self.asked, MOST_TRIED)
        if self.run.total_steps is not None:
            found.moments = within_run(found.moments, Fraction(self.run.total_steps))
        return found

    @cached_property
    def with_eps(self) -> Facts:
        """The same spec with eps as it is, where `question` has 0 for it."""
        declared = replace(self.asked.declarations, given={**self.declared.given, "eps": self.declared.eps})
        with deep_stack():
            program = lower(declared, Report())
        if program is None:
            return self
        root, _ = without_batch(program.graph, program.advantage)
        found = Facts(self.spec, self.run)
        found.outcome, found.left_out = self.outcome, self.left_out
        found.question = Question(self.asked, program, root, self.question.step, MOST_TRIED)
        found.question.moments = self.question.moments
        return found

    @cached_property
    def groups(self) -> dict[int, list[tuple]] | None:
        """Every group of two and of three: (rollouts, columns of the group, moment). None where there are too many."""
        found = {size: groups for size, groups in self.some_groups.items() if len(groups) == self._sizes[size]}
        return found if self.question.states()[1] and found else None

    @cached_property
    def some_groups(self) -> dict[int, list[tuple]]:
        """Groups of two and of three: all of them, or a few where there are too many."""
        found: dict[int, list[tuple]] = {}
        self._sizes: dict[int, int] = {}
        for size in SIZES:
            groups, _ = self.question.groups(size, 0)
            few = max(FEW // 5, min(FEW, MOST_NODES // len(walk(self.question.nodes))))
            self._sizes[size] = len(groups)
            found[size] = groups if len(groups) <= MOST_LOOKED_AT else groups[:: len(groups) // few][:few]
        return found

    @cached_property
    def looks_at_batch(self) -> bool:
        """Whether more than a change of scale depends on the rest of the batch."""
        return any(over_batch(n) for n in walk([self.question.root]))

    def values(self, node: Node, group: tuple) -> list | None:
        """The exact values of a node of `question`'s graph in a group; None where one is too close to call."""
        members, columns, moment = group
        key = (node.id, *moment.items())
        evaluators = self.__dict__.setdefault("_evaluators", {})
        if key not in evaluators:
            read = set(walk([node]))
            places = [(at, column) for at, column in enumerate(self.question.fine) if column in read]
            evaluators[key] = [at for at, _ in places], GroupEvaluator(node, [c for _, c in places], moment)
        places, evaluate = evaluators[key]
        try:
            found = evaluate([tuple(row[at] for at in places) for row in members], columns)
        except Inexact:
            return None
        return None if any(value is UNKNOWN for value in found) else found

    def advantages(self, group: tuple) -> list | None:
        return self.values(self.question.root, group)

    def each_of_some_groups(self) -> Iterator[tuple[tuple, list | None]]:
        """The groups of `some_groups` and their advantages, which are worked out once."""
        kept = self.__dict__.setdefault("_kept_advantages", {})
        for size, groups in self.some_groups.items():
            for at, group in enumerate(groups):
                if (size, at) not in kept:
                    kept[size, at] = self.advantages(group)
                yield group, kept[size, at]

    def transferred(self, theirs: Facts, group: tuple, whole: bool = False, of: Node | None = None) -> list | None:
        """The advantages that another spec gives a group; None where it reads columns that this one does not.

        whole: with the step over the batch, which the group is. of: what is asked for instead of the advantage.
        """
        members, columns, moment = group
        names = [n.attributes[0] for n in self.question.fine]
        own = [n.attributes[0] for n in theirs.question.fine]
        if not (set(own) <= set(names) and set(theirs.question.coarse) <= set(columns)):
            return None
        rows = tuple(tuple(m[names.index(n)] for n in own) for m in members)
        root = of or (theirs.question.program.advantage if whole else theirs.question.root)
        return theirs.values(root, (rows, columns, moment))

    @cached_property
    def wrong_above_right(self) -> tuple[tuple, list] | None:
        """A small group, and its advantages, in which a wrong answer is above a right one."""
        for group, advantages in self.looked_at("wrong-above-right"):
            right = self.right_in(group)
            if right is None or True not in right or False not in right:
                continue
            worst = min(a for a, r in zip(advantages, right, strict=True) if r is True)
            best = max(a for a, r in zip(advantages, right, strict=True) if r is False)
            if worst < best:
                return group, advantages
        return None

    def looked_at(self, code: str) -> Iterator[tuple[tuple, list]]:
        """Small groups and their advantages, for a finding that needs to know what is right.

        What is done over the batch afterwards is left out: it scales and shifts all groups alike.
        """
        if self.outcome is None:
            if len(columns_of([self.question.root])) > 1:
                self.leave_out(code, NO_OUTCOME)
            return
        if self.depends_on_batch(code):
            return
        unknown = False
        for group, advantages in self.each_of_some_groups():
            if advantages is None:
                unknown = True
            elif None not in advantages:
                yield group, advantages
        if unknown:
            self.leave_out(code, NOT_EXACT)
        elif self.few_of is not None:
            self.leave_out(code, self.few_of)

    def depends_on_batch(self, code: str) -> bool:
        """Whether the rest of the batch decides advantages, so that a finding cannot be looked at in one group."""
        if self.looks_at_batch:
            self.leave_out(code, OF_BATCH)
        return self.looks_at_batch

    @cached_property
    def few_of(self) -> str | None:
        """Why only some of the small groups are looked at; None where all are."""
        for size, groups in self.some_groups.items():
            if len(groups) < self._sizes[size]:
                return f"only {len(groups)} groups of {size} were looked at, of over {MOST_LOOKED_AT}"
        return None

    def shaped_in(self, name: str, group: tuple) -> list | None:
        node = next(c.shaped for c in self.question.program.components if c.name == name)
        return self.values(node, group)

    def table(self, group: tuple, advantages: list) -> str:
        """A group on a line: what each rollout is worth, and what it gets."""
        columns = {name: values for name in self.shaped if (values := self.shaped_in(name, group)) is not None}
        outcome = self.outcome and self.outcome.component
        telling = [name for name, values in columns.items() if name == outcome or len(set(values)) > 1]
        telling = sorted(telling or columns, key=lambda name: len(set(columns[name])) < 2 and name != outcome)[:5]
        shown = [[f"{n} {_shown(columns[n][i])}" for n in telling] for i in range(len(advantages))]
        reads = self.outcome.reads if self.outcome is not None else ()
        for at, node in enumerate(self.question.fine):  # what says who is right; signals that components do not show
            if node.attributes[0] in reads and node.attributes[0] not in columns:
                for row, values in zip(shown, group[0], strict=True):
                    row.insert(0, f"{node.attributes[0]} {_shown(values[at], node.domain.symbols)}")
                continue
            gets = {(tuple(row), a) for row, a in zip(shown, advantages, strict=True)}
            differ = len({row[at] for row in group[0]}) > 1
            if len({row for row, _ in gets}) < len(gets) and differ and node.attributes[0] not in columns:
                for row, values in zip(shown, group[0], strict=True):
                    row.append(f"{node.attributes[0]} {_shown(values[at], node.domain.symbols)}")
        more = ["..."] * (sum(len(set(values)) > 1 or n == outcome for n, values in columns.items()) > 5)
        rows: dict[str, int] = {}
        for values, a in zip(shown, advantages, strict=True):
            row = f"({', '.join([*values, *more])}) gets {float(a):.3g}"
            rows[row] = rows.get(row, 0) + 1
        text = "; ".join(row if count == 1 else f"{count} x {row}" for row, count in rows.items())
        if self.question.step == "shift":
            text += ", before the step over the batch"
        return text + self.at_moment(group[2])

    def at_moment(self, moment: dict) -> str:
        """When a claim holds, where that is not the first step: ` at step 30`."""
        read = {n.attributes[0] for n in walk(self.question.nodes) if n.op == "given"}
        when = [f"{name} {format_number(value)}" for name, value in moment.items() if name in read]
        return f" at {', '.join(when)}" if when and any(moment.get(name) for name in ("step", "progress")) else ""


def within_run(moments: list[dict], total: Fraction) -> list[dict]:
    """Moments of a run of any length as moments of one of `total` steps, whose last is `total - 1`."""
    found = []
    for moment in moments:
        if "total_steps" in moment:
            moment = {"step": moment["progress"] * total, "total_steps": total, "progress": moment["progress"]}
        elif "step" in moment:
            moment = {"step": min(moment["step"], total - 1)}
        found += [moment] if moment not in found else []
    return found


def _shown(value, symbols: Sequence[str] | None = None) -> str:
    return "-" if value is None else symbols[int(value)] if symbols else format(float(value), ".4g")


def _in_rollouts(node: Node, columns: list[Node], rows: list[tuple]) -> list:
    """A node's value for each rollout: in floats where it has no exact one."""
    times = {"step": Fraction(0), "total_steps": Fraction(1), "progress": Fraction(0)}
    try:
        return GroupEvaluator(node, columns, times)(rows, {})
    except Inexact:
        floats = [tuple(None if v is None else float(v) for v in row) for row in rows]
        return GroupEvaluator(node, columns, times, floats=True)(floats, {})


def some_rollouts(nodes: Sequence[Node], far: bool = False) -> tuple[list[Node], list[tuple]] | None:
    """The columns of nodes, and values that rollouts can have there: every one of finite domains, if they are few.

    far: also values far out, where a column has no end.

    None where a rollout's own columns, and the moment, do not decide the nodes.
    """
    order = walk(nodes)
    times = ("step", "progress", "total_steps")
    if any(n.op in (*REDUCTIONS, "copies") or (n.op == "given" and n.attributes[0] not in times) for n in order):
        return None
    users = users_of(order)
    columns = [n for n in order if n.op == "column"]
    endless = sum(n.domain.values is None for n in columns)
    between = int(MOST_ROLLOUTS ** (1 / max(1, endless))) // 4
    points = []
    for node in columns:
        found = set(points_of(node.domain, node, users, is_result=True)[0])
        if node.domain.values is None:
            lo, hi = min(found), max(found)
            found |= {lo + (hi - lo) * Fraction(i, between + 1) for i in range(1, between + 1)}
            found |= {hi + FAR} if far and node.domain.hi == inf else set()
            found |= {lo - FAR} if far and node.domain.lo == -inf else set()
        points.append(sorted(found))
    if prod(len(values) for values in points) <= MOST_ROLLOUTS:
        return columns, list(product(*points))
    draw = random.Random(0)
    return columns, [tuple(draw.choice(values) for values in points) for _ in range(MOST_ROLLOUTS)]


def findings() -> dict[str, Finding]:
    """All findings by code."""
    import rewardspec.lint.baseline
    import rewardspec.lint.divisors
    import rewardspec.lint.gates
    import rewardspec.lint.groups
    import rewardspec.lint.missing
    import rewardspec.lint.order
    import rewardspec.lint.schedule
    import rewardspec.lint.signal
    import rewardspec.lint.stages
    import rewardspec.lint.weights  # noqa: F401 (they declare themselves)

    return FINDINGS


def codes() -> list[str]:
    return [*findings(), *PAGES]


def page(code: str) -> str | None:
    """What a finding, or an error that has a page, means."""
    if code in findings():
        return FINDINGS[code].page
    if code in PAGES and code not in OF_ALLOW:
        return f"{PAGES[code]}\n\nIt is an error, so that `allow:` and `--error` have nothing to say of it."
    return PAGES.get(code)


def find(spec: Spec, run: Run = Run()) -> list[Diagnostic]:
    """Everything that the findings say of a spec, less what it allows, in the order of the text.

    Raises ValueError for a rate of something that cannot have one.
    """
    return look(spec, run)[0]


def look(spec: Spec, run: Run = Run()) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """What `find` gives, and a note for each reason why some findings could not be looked at, or not everywhere."""
    facts = Facts(spec, run)
    found = []
    for one in findings().values():
        try:
            found += one.look(facts)
        except Inexact:  # what has no exact value decides nothing
            facts.leave_out(one.code, NOT_EXACT)
        except SpecError:  # no graph of exact values to look at
            facts.leave_out(one.code, NOT_EXACT)
    in_vain = list(_allowances_in_vain(facts, found))
    notes = list(_notes(facts, {d.code for d in found} | {code for name, code, _ in allowances(facts) if name is None}))
    found = [d for d in found if not _is_allowed(facts, d)]
    return sorted([*found, *in_vain], key=lambda d: (d.span.start, d.code)), notes


def _notes(facts: Facts, settled: set[str]) -> Iterator[Diagnostic]:
    """What was not looked at, a note for each reason; of `settled` findings nothing more is said."""
    for reason, codes in facts.left_out.items():
        left = [code for code in codes if code not in settled]
        if left:
            span = facts.advantage_place()
            yield Diagnostic("not-looked-at", f"{', '.join(left)}: {reason}", span, severity="note")


def allowances(facts: Facts) -> Iterator[tuple[str | None, str, Span]]:
    """(component or None for the whole spec, code, place) of everything that a spec allows."""
    for code in facts.document.allow:
        yield None, code, facts.root_node.get("allow").key(code).span
    for name, component in facts.document.components.items():
        for code in component.allow:
            yield name, code, facts.root_node.get("components").get(name).get("allow").key(code).span


def _allowances_in_vain(facts: Facts, found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """What is said of allowances that silence nothing: of no finding, of an error, in a component of another one's."""
    for component, code, span in allowances(facts):
        if code in OF_ALLOW:
            message, help = f"`{code}` is about `allow:` itself, and cannot be allowed", "mend what it points at"
            yield facts.warn("allow-without-effect", message, span, help=help)
        elif code in PAGES:
            message = f"`{code}` is an error, and cannot be allowed"
            help = f"leave it out; `rewardspec explain {code}` says what to write instead"
            yield facts.warn("allow-without-effect", message, span, help=help)
        elif code not in FINDINGS:
            help = did_you_mean(code, FINDINGS, "`rewardspec list findings` shows all")
            yield facts.warn("unknown-finding", f"there is no finding `{shorten(code)}` to allow", span, help=help)
        elif component is not None and (code in OF_SPEC or _is_elsewhere(facts, component, code, found)):
            whole, elsewhere = (
                "is about the whole spec: no component can",
                f"is not found in `{component}`, which cannot",
            )
            message = f"`{code}` {whole if code in OF_SPEC else elsewhere} allow it"
            yield facts.warn("allow-without-effect", message, span, help="say it in the spec's own `allow:`")


def _is_elsewhere(facts: Facts, component: str, code: str, found: Sequence[Diagnostic]) -> bool:
    """Whether a finding is found outside all components, and not in this one."""
    own = [d for d in found if d.code == code]
    if any(_stands_in(facts, component, d) for d in own):
        return False
    return any(not any(_stands_in(facts, name, d) for name in facts.document.components) for d in own)


def _is_allowed(facts: Facts, diagnostic: Diagnostic) -> bool:
    return any(
        code == diagnostic.code and (name is None or _stands_in(facts, name, diagnostic))
        for name, code, _ in allowances(facts)
    )


def _stands_in(facts: Facts, component: str, diagnostic: Diagnostic) -> bool:
    whole = facts.root_node.get("components")
    return whole.key(component).span.start <= diagnostic.span.start <= whole.get(component).span.end
