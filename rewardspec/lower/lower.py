"""Declarations to a program: every component, the advantage and the guarantees as nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from rewardspec.ir.graph import Graph, Node, TooLarge, walk
from rewardspec.ir.looking import least_seen
from rewardspec.language.declarations import Column, Declarations, Use
from rewardspec.lower.calls import Calls
from rewardspec.lower.values import Bundle, Skip, Truth
from rewardspec.ops.domain import Level, interval
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.syntax.tree import Expr, If, Name, Number, Operation, format_number
from rewardspec.text.diagnostics import Label, Report, shorten


@dataclass(frozen=True, eq=False)
class ComponentValue:
    """A component in the graph."""

    name: str
    shaped: Node
    weight: Node


@dataclass(eq=False)
class Program:
    """A spec as a graph. `columns` are all that it declares."""

    graph: Graph
    columns: dict[str, Column]
    components: list[ComponentValue]
    keep: Node | None
    copies: Node | None  # None where no group is drawn again
    advantage: Node
    outcome: Truth | None  # whether a rollout is right, where the spec declares it
    guarantees: dict[str, Node]
    labels: dict[str, Node]  # of reward tokens: conditions on one trajectory
    eps: Fraction
    ddof: Fraction
    total: Node | None = None  # what the spec calls `total`, for logs: see `Lowering.total`

    @property
    def results(self) -> list[Node]:
        """All that a call gives back: the advantage, shaped components, weights, kept groups, copies."""
        found = [self.advantage, *(node for c in self.components for node in (c.shaped, c.weight))]
        return [*found, *(node for node in (self.keep, self.copies) if node is not None)]


def lower(
    declared: Declarations, report: Report, decide: Callable[[Graph, Node], Node] | None = None
) -> Program | None:
    """The program of a spec; None where anything in it is wrong (reasons in `report`).

    decide: what `advantage` stands for in guarantees, given the advantage itself.
    """
    lowering = Lowering(declared, report, decide)
    try:
        return lowering.program()
    except TooLarge:
        start = declared.place.value
        report.error(
            "too-large",
            "the spec comes down to more values than can be compiled",
            start.source.span(start.start, start.start + 1),
            help="definitions that use themselves several times over grow without bound",
        )
    except Skip:
        pass
    return None


class Lowering(Calls):
    """The sections of a spec."""

    def __init__(self, declared: Declarations, report: Report, decide: Callable[[Graph, Node], Node] | None = None):
        super().__init__(declared, report)
        self.decide = decide

    def program(self) -> Program | None:
        declared = self.declared
        components = [self.try_(lambda n=name: self.component(n)) for name in declared.components]
        weights = [self.try_(lambda n=name: self.weight(n)) for name in declared.components]
        keep = self.try_(lambda: self.kept(declared.keep)) if declared.keep else None
        copies = self.try_(lambda: self.drawn(declared.refill, keep)) if declared.refill and keep else None
        broken = None in components or None in weights
        self.keep = keep
        self.copies = copies or (self.graph.const(1) if keep is None else keep)
        self.check_definitions()
        advantage = None
        if declared.advantage is not None:
            advantage = self.try_(lambda: self.final(declared.advantage, quiet=broken))
        outcome = self.try_(self.right) if declared.outcome is not None else None
        guarantees = {}
        if advantage is not None:
            self.advantage = self.decide(self.graph, advantage) if self.decide else advantage
            for name, expr in declared.guarantees.items():
                guarantees[name] = self.try_(lambda e=expr: self.promise(e))
                if guarantees[name] is not None:
                    self.graph.names.setdefault(guarantees[name], name)
        else:
            for expr in declared.guarantees.values():
                self.names_in(expr, frozenset({"advantage"}), self.user)
        labels = {}
        if declared.reward_tokens is not None and not broken:
            for name, expr in declared.reward_tokens.labels.items():
                labels[name] = self.try_(lambda e=expr: self.label(e))
        if not broken:
            for use in declared.uses.values():
                if use.only_when is not None:
                    self.try_(lambda u=use: self.asked(u))
        if self.report.failed or broken or advantage is None:
            return None
        values = [
            ComponentValue(name, shaped, weight)
            for name, shaped, weight in zip(declared.components, components, weights, strict=True)
        ]
        program = Program(
            self.graph,
            declared.columns,
            values,
            keep,
            copies,
            advantage,
            outcome,
            guarantees,
            labels,
            declared.eps,
            declared.ddof,
            self.total([advantage, *components, *weights, *(n for n in (keep, copies) if n is not None)]),
        )
        asked = set(walk([*program.results, *guarantees.values(), *labels.values()]))
        for node, message, span in self.never:
            if node in asked:
                self.report.error("undefined", message, span)
        return None if self.report.failed else program

    def total(self, results: list[Node]) -> Node | None:
        """What the spec's own `total` is, or the prelude's, one for every rollout: the reward that trainers log.

        The prelude's where the spec's own is no such number, or reads what no result of a call reads. None for a
        spec that has no room for either.
        """
        read = {n for n in walk(results) if n.op in ("column", "given")}
        names, report, self.report = dict(self.graph.names), self.report, Report()
        try:
            for scope in [self.user] * ("total" in self.declared.values) + [self.own]:
                node = self.try_(lambda s=scope: self.number(Name(self.declared.place.value, "total"), s))
                if (
                    node is not None
                    and not node.domain.symbols
                    and read.issuperset(n for n in walk([node]) if n.op in ("column", "given"))
                ):
                    return self.graph.spread(node)
        except TooLarge:
            pass
        finally:
            self.graph.names, self.report = names, report  # nothing is called otherwise because of a log
        return None

    def component(self, name: str) -> Node:
        """A component's shaped value, one for every rollout."""
        declaration = self.declared.components[name]
        if declaration.value is None:
            raise Skip

        def make() -> Node:
            node = self.number(declaration.value, self.user)
            if node.domain.symbols:
                self.fail(
                    "not-a-number",
                    f"`{name}` holds names, which cannot be rewarded",
                    declaration.span,
                    help="a truth value is a number: `values: [0, 1]`"
                    if {symbol.lower() for symbol in node.domain.symbols} <= {"true", "false", "yes", "no"}
                    else "declare it under `signals:`",
                )
            node = self.graph.spread(node)
            self.graph.names.setdefault(node, name)
            self.check_gate(declaration)
            return node

        return self.once(("component", name), declaration.span, make)

    def check_gate(self, declaration) -> None:
        """The sections that say when a component counts, against what is known of its value."""
        value = declaration.value
        if not isinstance(value, If) or declaration.when is None:
            return
        condition = self.condition(declaration.when, self.user)
        if condition.domain.constant == 0 and not self.declared.given:  # at one step a gate may well be closed
            labels, help = self.reachable(declaration.when)
            self.fail(
                "gate-never-opens",
                f"`{declaration.name}` can never count",
                declaration.when.span,
                note="never true",
                labels=labels,
                help=help,
            )
        inner = self.number(value.then, self.user)
        if declaration.says("otherwise") or inner.domain.lo >= 0 or self.declared.given:
            return
        least = least_seen(inner, condition)
        if least is not None and least < 0:  # a domain alone proves nothing where its parts are related
            self.fail(
                "otherwise-needed",
                f"`{declaration.name}` can be below 0, so where it does not count 0 would be a reward",
                declaration.when.span,
                help=f"add `otherwise: {format_number(inner.domain.lo)}`, its least value, or `otherwise: ignore`"
                if least == inner.domain.lo
                else "add `otherwise:` with the value it has there, or `otherwise: ignore`",
            )

    def reachable(self, when: Expr) -> tuple[tuple[Label, ...], str | None]:
        """What makes a comparison with a constant impossible, and the nearest one that is possible."""
        match when:
            case Operation(operator=operator, operands=(Name(text=name), Number(value=limit))) if (
                name in self.declared.columns
            ):
                column = self.declared.columns[name]
                domain = column.domain
                low, high = (format_number(end) for end in (domain.lo, domain.hi))
                if operator in (">=", ">") or (operator == "==" and limit > domain.hi):
                    label, nearest = f"at most {high}", f"did you mean `{name} >= {high}`?"
                elif operator in ("<=", "<") or (operator == "==" and limit < domain.lo):
                    label, nearest = f"at least {low}", f"did you mean `{name} <= {low}`?"
                else:
                    label, nearest = str(domain), None
                return (Label(column.domain_span, f"`{name}` is {label}"),), nearest
        return (), None

    def weight(self, name: str) -> Node:
        expr = self.declared.components[name].weight
        if expr is None:
            raise Skip

        def make() -> Node:
            node = self.number(expr, self.user)
            if node.level is Level.ROLLOUT:
                self.fail(
                    "wrong-level",
                    f"the weight of `{name}` differs from rollout to rollout",
                    expr.span,
                    help="a weight is one number a batch or a group; shape the component with `expr:` or `when:`",
                )
            return node

        return self.once(("weight", name), expr.span, make)

    def kept(self, expr: Expr) -> Node:
        node = self.condition(expr, self.user)
        if node.level is Level.ROLLOUT:
            self.fail(
                "wrong-level",
                "`keep` decides about groups, and this differs within one",
                expr.span,
                help="reduce it: `any(...)`, `all(...)`, `var(...) > 0`",
            )
        node = self.graph.spread(node, Level.GROUP)
        self.graph.names.setdefault(node, "keep")
        return node

    def drawn(self, expr: Expr, keep: Node) -> Node:
        """How often each group stands in the batch: 0 for those that `keep` leaves out."""
        graph = self.graph
        score = self.number(expr, self.user)
        if score.level is Level.ROLLOUT:
            self.fail(
                "wrong-level",
                "`refill` is one score a group, and this differs within one",
                expr.span,
                help="reduce it: `mean(...)`, `var(...)`",
            )
        if score.domain.symbols:
            self.fail("not-a-number", "`refill` is a score, not a name", expr.span)
        graph.names.setdefault(score, "refill")
        score = graph.spread(score, Level.GROUP)
        once_or_more = interval(Fraction(1), inf)
        drawn = graph.node("copies", (keep, score), (), Level.GROUP, once_or_more)
        graph.names.setdefault(drawn, "drawn")
        node = graph.if_(keep, drawn, graph.const(0))
        graph.names.setdefault(node, "copies")
        return node

    def right(self) -> Truth:
        """Whether a rollout is right, as `outcome:` declares it."""
        expr = self.declared.outcome
        if expr is None:
            raise Skip  # what is wrong with it has been said

        def make() -> Truth:
            self.condition(expr, self.user)  # a bundle, or what is no condition, is an error
            truth = self.truth(self.value(expr, self.user), expr.span)
            if truth.holds.level is not Level.ROLLOUT:
                self.fail(
                    "wrong-level",
                    f"this is one answer for a {truth.holds.level}, and `outcome` says which rollouts are right",
                    expr.span,
                    help="compare what each rollout has: `correct >= 1`",
                )
            if truth.holds.domain.constant is not None and not self.declared.given:
                always = bool(truth.holds.domain.constant)
                labels, help = self.reachable(expr)
                self.fail(
                    "outcome-decided",
                    "every rollout is right, whatever was measured" if always else "no rollout can ever be right",
                    expr.span,
                    note="always true" if always else "never true",
                    labels=labels if not always else (),
                    help=help if not always else "write the threshold that tells right from wrong: `correct >= 1`",
                )
            return Truth(self.graph.spread(truth.holds), self.graph.spread(truth.fails))

        return self.once(("outcome", "outcome"), expr.span, make)

    def promise(self, expr: Expr) -> Node:
        """A guarantee: broken where it fails, and not where it is missing."""
        value = self.value(expr, self.user)
        if isinstance(value, Bundle):
            value = Truth(
                self.graph.all_of([self.truth(v, expr.span).holds for v in value.values]),
                self.graph.any_of([self.truth(v, expr.span).fails for v in value.values]),
            )
        return self.graph.negation(self.truth(value, expr.span).fails)

    def label(self, expr: Expr) -> Node:
        """Whether a trajectory is given a token, before there are groups, batches or steps."""
        return self.of_one(expr, "a label is given to one trajectory before training")

    def asked(self, use: Use) -> Node:
        """Whether a reward function is asked about a rollout."""
        node = self.of_one(use.only_when, f"whether `{use.column}` is measured is told from one rollout")
        uses = self.declared.uses
        columns = [n.attributes[0] for n in walk([node]) if n.op == "column"]
        if not columns:
            self.fail(
                "asked-of-nothing",
                f"whether `{use.column}` is measured does not depend on anything that is measured",
                use.only_when.span,
                help="compare what the rollout has: `correct >= 1`",
            )
        for column in columns:
            if column in uses and uses[column].only_when is not None:
                itself = column == use.column
                self.fail(
                    "asked-late",
                    f"`{use.column}` is asked for by " + ("its own value" if itself else f"`{column}`"),
                    use.only_when.span,
                    labels=() if itself else (Label(uses[column].span, "not measured everywhere itself"),),
                    help="`only_when` can compare what is measured for every rollout",
                )
        return node

    def of_one(self, expr: Expr, why: str) -> Node:
        """A condition on one rollout's own values."""
        node = self.condition(expr, self.user)
        if any(n.op in (*REDUCTIONS, "given", "copies") for n in walk([node])):
            self.fail(
                "wrong-level",
                f"{why}, and this looks at its group, batch or step",
                expr.span,
                help="compare its own components: `correct >= 1`",
            )
        return self.graph.spread(node)

    def final(self, expr: Expr, quiet: bool) -> Node:
        """The advantage: 0 for a rollout of which nothing was measured, and outside the kept groups."""
        if quiet:  # some component has no value, so the schemes have none either
            self.names_in(expr, frozenset(), self.user)
            raise Skip
        value = self.value(expr, self.user)
        if isinstance(value, Bundle):
            self.fail(
                "bundle-left-over",
                "this is one value for each component, and the advantage is one for a rollout",
                expr.span,
                help=f"did you mean `sum({shorten(expr.span.text)}, over=components)`?",
            )
        node = self.as_number(value, expr.span)
        if node.level is not Level.ROLLOUT:
            self.fail(
                "wrong-level",
                f"this is one value for a {node.level}, and the advantage needs one for every rollout",
                expr.span,
                help="compare each rollout with its group: `center`, `zscore` or a scheme such as `grpo`",
            )
        graph = self.graph
        graph.here = expr.span
        measured = graph.any_of([graph.present(self.component(name)) for name in self.declared.components])
        node = graph.if_(measured, node, graph.const(0))
        if self.keep is not None:
            node = graph.if_(self.keep, node, graph.const(0))
        return node

    def check_definitions(self) -> None:
        """Names in definitions that nothing uses; values are lowered, functions read through."""
        for definition in self.declared.functions.values():
            parameters = frozenset(name for name, _ in definition.signature.parameters)
            for _, default in definition.signature.parameters:
                if default is not None:
                    self.try_(lambda d=default: self.names_in(d, frozenset(), self.user))
            if definition.body is not None:
                self.try_(lambda b=definition.body, p=parameters: self.names_in(b, p, self.user))
        for name in self.declared.values:
            self.try_(lambda n=name: self.definition(n, self.user, None))
