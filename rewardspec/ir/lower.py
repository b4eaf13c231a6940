"""Expressions to graph: names resolved, definitions inlined, levels checked.

A lowered value is a node, a bundle (one value a component: the components axis, unrolled), a truth
(a condition that can be missing), an axis, or a symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

from rewardspec.diagnostics import Label, Report, did_you_mean, shorten
from rewardspec.ir.graph import Graph, Node, TooLarge
from rewardspec.ops.elementwise import ELEMENTWISE
from rewardspec.ops.functions import FUNCTIONS, ONE_VALUE, TAKES_CONDITIONS, Function
from rewardspec.source import Span
from rewardspec.spec.declarations import AXES, GIVEN, Column, Declarations, Definition, prelude
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation, format_number
from rewardspec.types import Level, finite, interval

DEEPEST = 120  # of expressions and the definitions they use together; Python's own stack allows more
MOST_STEPS = 50_000

PI = Fraction(3141592653589793, 10**15)


@dataclass(frozen=True)
class Bundle:
    """One value for each component."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Truth:
    """A condition that can be missing: then it neither holds nor fails."""

    holds: Node
    fails: Node


@dataclass(frozen=True)
class Axis:
    name: str


@dataclass(frozen=True)
class Bound:
    """An argument as a function body sees it: its value, and the component it names, if it does."""

    value: Value
    expr: Expr
    scope: Scope


Value = Node | Bundle | Truth | Axis


@dataclass(frozen=True, eq=False)
class Scope:
    """Where a name is looked up: a function's parameters, then the spec's own names or the prelude's."""

    prelude: bool
    parameters: dict[str, Bound] = field(default_factory=dict)


class _Skip(Exception):
    """An expression without a value; the reason is in the report."""


@dataclass(frozen=True, eq=False)
class ComponentValue:
    """A component in the graph. `raw` is None where it is derived."""

    name: str
    shaped: Node
    weight: Node
    raw: Node | None


@dataclass(eq=False)
class Program:
    """A spec as a graph. `columns` are those that some value depends on or a component measures."""

    graph: Graph
    columns: dict[str, Column]
    components: list[ComponentValue]
    keep: Node | None
    advantage: Node
    guarantees: dict[str, Node]
    eps: Fraction
    ddof: Fraction


def lower(declared: Declarations, report: Report) -> Program | None:
    """The program of a spec; None where anything in it is wrong (reasons in `report`)."""
    lowering = _Lowering(declared, report)
    try:
        return lowering.program()
    except TooLarge:
        start = declared.root.span
        report.error(
            "too-large",
            "the spec comes down to more values than can be compiled",
            start.source.span(start.start, start.start + 1),
            help="definitions that use themselves several times over grow without bound",
        )
    except _Skip:
        pass
    return None


class _Lowering:
    def __init__(self, declared: Declarations, report: Report):
        self.declared = declared
        self.report = report
        self.graph = Graph()
        self.user, self.own = Scope(prelude=False), Scope(prelude=True)
        self.done: dict[tuple, Value | None] = {}
        self.open: list[tuple] = []  # definitions and components being lowered, for cycles
        self.keep: Node | None = None
        self.advantage: Node | None = None
        self.depth = 0
        self.steps = 0
        self.site: Span | None = None  # the user's text that a definition is inlined at

    # The program ---------------------------------------------------------------------------------

    def program(self) -> Program | None:
        declared = self.declared
        components = [self.try_(lambda n=name: self.component(n)) for name in declared.components]
        weights = [self.try_(lambda n=name: self.weight(n)) for name in declared.components]
        self.check_definitions()
        keep = self.try_(lambda: self.kept(declared.keep)) if declared.keep else None
        broken = None in components or None in weights
        self.keep = keep
        advantage = None
        if declared.advantage is not None:
            advantage = self.try_(lambda: self.final(declared.advantage, quiet=broken))
        self.advantage = advantage
        guarantees = {}
        if advantage is not None:
            for name, expr in declared.guarantees.items():
                guarantees[name] = self.try_(lambda e=expr: self.condition(e, self.user))
                if guarantees[name] is not None:
                    self.graph.names.setdefault(guarantees[name], name)
        if self.report.failed or broken or advantage is None:
            return None
        values = [
            ComponentValue(name, shaped, weight, self.raw_of(name) if name in declared.columns else None)
            for name, shaped, weight in zip(declared.components, components, weights, strict=True)
        ]
        return Program(
            self.graph, declared.columns, values, keep, advantage, guarantees, declared.eps, declared.ddof
        )

    def try_(self, make: Callable[[], Node]) -> Node | None:
        try:
            return make()
        except _Skip:
            return None

    def component(self, name: str) -> Node:
        """A component's shaped value, one for every rollout."""
        declaration = self.declared.components[name]
        if declaration.value is None:
            raise _Skip

        def make() -> Node:
            node = self.number(declaration.value, self.user)
            if node.domain.symbols:
                self.fail("not-a-number", f"`{name}` holds names, which cannot be rewarded", declaration.span, help="declare it under `signals:`")
            node = self.graph.spread(node)
            self.graph.names.setdefault(node, name)
            self.check_gate(declaration)
            return node

        return self.once(("component", name), declaration.span, make)

    def check_gate(self, declaration) -> None:
        """The sections that say when a component counts, against what is known of its value."""
        component = self.declared.document.components[declaration.name]
        value = declaration.value
        if not isinstance(value, If) or declaration.when is None:
            return
        condition = self.condition(declaration.when, self.user)
        if condition.constant == 0:
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
        if component.otherwise is None and inner.domain.lo < 0:
            self.fail(
                "otherwise-needed",
                f"`{declaration.name}` can be below 0, so where it does not count 0 would be a reward",
                declaration.when.span,
                help=f"add `otherwise: {format_number(inner.domain.lo)}`, its least value, or `otherwise: ignore`"
                if inner.domain.lo > -inf
                else "add `otherwise:` with the value it has there, or `otherwise: ignore`",
            )

    def reachable(self, when: Expr) -> tuple[tuple[Label, ...], str | None]:
        """What makes a comparison with a constant impossible, and the nearest one that is possible."""
        match when:
            case Operation(operator=operator, operands=(Name(text=name), Number(value=limit))) if name in self.declared.columns:
                column = self.declared.columns[name]
                domain = column.domain
                low, high = (format_number(end) for end in (domain.lo, domain.hi))
                label = f"`{name}` is {'at most ' + high if limit > domain.hi else 'at least ' + low if limit < domain.lo else 'never that'}"
                if operator in (">=", ">", "==") and limit >= domain.hi:
                    nearest = f"did you mean `{name} >= {high}`?"
                elif operator in ("<=", "<", "==") and limit <= domain.lo:
                    nearest = f"did you mean `{name} <= {low}`?"
                else:
                    nearest = None
                return (Label(column.domain_span, label),), nearest
        return (), None

    def weight(self, name: str) -> Node:
        expr = self.declared.components[name].weight
        if expr is None:
            raise _Skip

        def make() -> Node:
            node = self.number(expr, self.user)
            if node.level is Level.ROLLOUT:
                self.fail(
                    "wrong-level",
                    f"the weight of `{name}` differs from rollout to rollout",
                    expr.span,
                    help="a weight is one number a batch or a group; shape the component itself with `expr:` or `when:`",
                )
            return node

        return self.once(("weight", name), expr.span, make)

    def kept(self, expr: Expr) -> Node:
        node = self.condition(expr, self.user)
        if node.level is Level.ROLLOUT:
            self.fail("wrong-level", "`keep` decides about groups, and this differs within one", expr.span, help="reduce it: `any(...)`, `all(...)`, `var(...) > 0`")
        node = self.graph.spread(node, Level.GROUP)
        self.graph.names.setdefault(node, "keep")
        return node

    def final(self, expr: Expr, quiet: bool) -> Node:
        """The advantage: 0 for a rollout of which nothing was measured, and outside the kept groups."""
        if quiet:  # some component has no value, so the schemes have none either
            self.names_in(expr, frozenset(), self.user)
            raise _Skip
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

    def names_in(self, expr: Expr, parameters: frozenset[str], scope: Scope) -> None:
        """Report every unknown name and function of an expression."""
        match expr:
            case Name(text=text):
                if text not in parameters and text not in AXES and not self.knows(text) and not self.is_symbol(text):
                    self.unknown(expr, scope)
            case Call():
                if self.function(expr.function.text, scope) is None and expr.function.text not in FUNCTIONS:
                    self.unknown_function(expr.function, scope)
                for argument in (*expr.arguments, *(value for _, value in expr.keywords)):
                    self.names_in(argument, parameters, scope)
            case Operation(operands=operands):
                for operand in operands:
                    self.names_in(operand, parameters, scope)
            case If():
                for part in (expr.condition, expr.then, expr.otherwise):
                    self.names_in(part, parameters, scope)

    def is_symbol(self, text: str) -> bool:
        return any(text in (column.domain.symbols or ()) for column in self.declared.columns.values())

    # Names ---------------------------------------------------------------------------------------

    def once(self, key: tuple, span: Span, make: Callable[[], Value]) -> Value:
        """What `make` gives, made once; a cycle through `key` is an error."""
        key = (*key, self.keep is not None)
        if key in self.done:
            found = self.done[key]
            if found is None:
                raise _Skip
            return found
        if key in self.open:
            names = [entry[1] for entry in self.open[self.open.index(key) :]] + [key[1]]
            self.done[key] = None
            shown = " -> ".join(f"`{name}`" for name in (names if len(names) < 8 else [*names[:6], "...", names[-1]]))
            self.fail("cycle", f"`{key[1]}` depends on itself: {shown}", span, help="break the circle")
        self.open.append(key)
        try:
            self.done[key] = made = make()
            return made
        except _Skip:
            self.done[key] = None
            raise
        finally:
            self.open.pop()

    def knows(self, name: str) -> bool:
        return name in self.names(self.user)

    def names(self, scope: Scope) -> list[str]:
        own = [] if scope.prelude else [*self.declared.values, *self.declared.columns, *self.declared.components, *self.declared.damaged]
        extra = ["advantage"] if self.advantage is not None else []
        return [*scope.parameters, *own, *prelude().values, *GIVEN, *extra]

    def name(self, expr: Name, scope: Scope) -> Value:
        name = expr.text
        if name in scope.parameters:
            return scope.parameters[name].value
        if name in AXES:
            return Axis(name)
        if not scope.prelude:
            if name in self.declared.damaged:
                raise _Skip
            if name in self.declared.values:
                return self.definition(name, scope, expr)
            if name in self.declared.components:
                return self.component(name)
            if name in self.declared.columns:
                return self.signal(name)
        if name in prelude().values:
            return self.definition(name, self.own, expr)
        if name == "advantage" and self.advantage is not None:
            return self.advantage
        if name in GIVEN:
            return self.given(name)
        self.unknown(expr, scope)
        raise _Skip

    def unknown(self, expr: Name, scope: Scope) -> None:
        name = expr.text
        known = self.names(scope)
        help = did_you_mean(name, known)
        if name.lower() in ("yes", "no", "true", "false", "on", "off"):
            help = f"`{name}` is a name here; write 1 or 0"
        elif name.lower() in ("none", "null", "nan"):
            help = "what was not measured is `missing`"
        elif name == "advantage":
            help = "`advantage` can be used in `guarantees:` only"
        elif help is None and name in FUNCTIONS:
            help = f"it is a function: `{FUNCTIONS[name].signature(name)}`"
        elif self.function(name, scope) is not None and help is None:
            help = f"it is a function: `{name}(...)`"
        if help is None:
            own = [*self.declared.columns, *self.declared.components]
            help = f"declare it under `signals:`, or define it; the spec has {', '.join(f'`{n}`' for n in dict.fromkeys(own))}" if own else None
        self.report.error("unknown-name", f"there is no `{shorten(name)}`", expr.span, help=help)

    def definition(self, name: str, scope: Scope, expr: Name | None) -> Value:
        found = (prelude() if scope.prelude else self.declared).values[name]
        if found.body is None:
            raise _Skip

        def make() -> Value:
            value = self.inlined(found, Scope(scope.prelude), expr)
            for node in [value] if isinstance(value, Node) else []:
                self.graph.names.setdefault(node, name)
            return value

        return self.once(("definition", name, scope.prelude), (expr or found.signature).span, make)

    def inlined(self, definition: Definition, scope: Scope, site: Expr | None) -> Value:
        outer = self.site
        if definition.prelude and self.site is None and site is not None:
            self.site = site.span
        try:
            return self.value(definition.body, scope)
        finally:
            self.site = outer

    def signal(self, name: str) -> Node:
        """A column as measured, missing values as its policy has them."""
        column = self.declared.columns[name]
        domain = column.domain.or_missing(column.missing == "ignore" or column.gated)
        node = self.graph.column(name, column.level, domain)
        self.graph.spans.setdefault(node, column.span)
        return node

    def raw_of(self, name: str) -> Node:
        return self.signal(name)

    def given(self, name: str) -> Value:
        graph, one = self.graph, Fraction(1)
        match name:
            case "rewards":
                return Bundle(tuple(self.component(n) for n in self.declared.components))
            case "weights":
                return Bundle(tuple(self.weight(n) for n in self.declared.components))
            case "missing":
                return graph.missing()
            case "step":
                return graph.given(name, interval(Fraction(0), inf))
            case "progress":
                return graph.given(name, interval(Fraction(0), one))
            case "total_steps" | "batch_size":
                return graph.given(name, interval(one, inf))
            case "group_size":
                return graph.given(name, interval(one, inf), Level.GROUP)
            case "pi":
                return graph.given(name, interval(PI, PI + Fraction(1, 10**15)))
            case "eps":
                eps = self.declared.eps
                return graph.given(name, finite([eps])) if eps else graph.const(0)
        raise AssertionError(f"no value for `{name}`")

    # Expressions ---------------------------------------------------------------------------------

    def fail(self, code: str, message: str, span: Span, **rest) -> None:
        """Report at the user's text: an error inside the prelude stands where the prelude was used."""
        self.report.error(code, message, self.site or span, **rest)
        raise _Skip

    def value(self, expr: Expr, scope: Scope) -> Value:
        self.steps += 1
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                self.fail("too-deep", f"definitions and expressions nested more than {DEEPEST} deep", expr.span)
            if self.steps > MOST_STEPS:
                raise TooLarge
            self.graph.here = self.site or expr.span
            match expr:
                case Number(value=value):
                    if isinstance(value, float):
                        self.fail("infinite-value", "infinity cannot be computed with", expr.span)
                    return self.graph.const(value)
                case Name():
                    return self.name(expr, scope)
                case Call():
                    return self.call(expr, scope)
                case Operation(operator="and" | "or" | "not"):
                    return self.logic(expr, scope)
                case Operation(operator="<" | "<=" | ">" | ">=" | "==" | "!="):
                    return self.comparison(expr, scope)
                case Operation():
                    return self.arithmetic(expr, scope)
                case If():
                    return self.choice(expr, scope)
            raise AssertionError(f"no meaning for {expr!r}")
        finally:
            self.depth -= 1

    def values(self, exprs: tuple[Expr, ...], scope: Scope) -> list[Value]:
        """The values of several expressions; all of them are read before the first error counts."""
        found, failed = [], False
        for expr in exprs:
            try:
                found.append(self.value(expr, scope))
            except _Skip:
                failed = True
        if failed:
            raise _Skip
        return found

    def number(self, expr: Expr, scope: Scope) -> Node:
        value = self.value(expr, scope)
        if isinstance(value, Bundle):
            self.fail(
                "bundle-left-over",
                "this is one value for each component, and one value is wanted",
                expr.span,
                help=f"did you mean `sum({shorten(expr.span.text)}, over=components)`?",
            )
        return self.as_number(value, expr.span)

    def condition(self, expr: Expr, scope: Scope) -> Node:
        """Whether an expression holds: a node that is never missing."""
        value = self.value(expr, scope)
        if isinstance(value, Bundle):
            self.fail(
                "bundle-left-over",
                "this is one condition for each component, and one is wanted",
                expr.span,
                help=f"did you mean `all({shorten(expr.span.text)}, over=components)`?",
            )
        return self.truth(value, expr.span).holds

    def as_number(self, value: Value, span: Span) -> Node:
        match value:
            case Truth(holds, fails):
                graph = self.graph
                return graph.if_(holds, graph.const(1), graph.if_(fails, graph.const(0), graph.missing()))
            case Axis(name):
                self.fail("not-a-value", f"`{name}` names an axis, not a value", span, help="an axis stands after `over=`")
            case Node():
                return value
        raise AssertionError(f"no number for {value!r}")

    def truth(self, value: Value, span: Span) -> Truth:
        if isinstance(value, Truth):
            return value
        node = self.as_number(value, span)
        if not node.domain.condition and node.op != "missing":
            known = f"it can be {node.domain}"
            help = "compare it: `... > 0`"
            if node.domain.symbols:
                help = f"compare it: `... == {node.domain.symbols[0]}`"
            self.fail("not-a-condition", "a condition is wanted here, which is 0 or 1", span, note=known, help=help)
        if node.boolean and not node.domain.missing:
            return Truth(node, self.graph.negation(node))
        if node.constant is not None:
            return Truth(node, self.graph.negation(node))
        zero, one = self.graph.const(0), self.graph.const(1)
        return Truth(self.graph.compare("==", node, one), self.graph.compare("==", node, zero))

    def each(self, make: Callable[..., Value], *values: Value) -> Value:
        """`make` of the values, component by component where any of them is a bundle."""
        size = next((len(v.values) for v in values if isinstance(v, Bundle)), None)
        if size is None:
            return make(*values)
        rows = [v.values if isinstance(v, Bundle) else (v,) * size for v in values]
        return Bundle(tuple(make(*row) for row in zip(*rows, strict=True)))

    def numbers(self, make: Callable[..., Node], values: list[Value], exprs) -> Value:
        """`make` of the values as numbers; names (symbols) are refused."""

        def checked(*row: Value) -> Node:
            nodes = [self.as_number(v, e.span) for v, e in zip(row, exprs, strict=True)]
            for node, e in zip(nodes, exprs, strict=True):
                if node.domain.symbols:
                    self.fail("not-a-number", f"`{shorten(e.span.text)}` holds names, which cannot be computed with", e.span, help=f"compare it: `... == {node.domain.symbols[0]}`")
            return make(*nodes)

        return self.each(checked, *values)

    def arithmetic(self, expr: Operation, scope: Scope) -> Value:
        values = self.values(expr.operands, scope)
        name = expr.operator
        self.graph.here = self.site or expr.span

        def make(*nodes: Node) -> Node:
            result = nodes[0] if len(nodes) > 1 else self.elementwise(name, nodes, expr)
            for node in nodes[1:]:
                result = self.elementwise(name, (result, node), expr)
            return result

        return self.numbers(make, values, expr.operands)

    def elementwise(self, name: str, nodes: tuple[Node, ...], expr: Expr) -> Node:
        """One operator, with an error where it can have no result for any value."""
        op = ELEMENTWISE[name]
        domains = [node.domain for node in nodes]
        if op.undefined and all(node.constant is not None for node in nodes) and op.undefined(*domains):
            what = "division by 0" if name == "/" else f"`{name}` has no value here"
            self.fail("undefined", what, expr.span)
        return self.graph.apply(name, *nodes)

    def logic(self, expr: Operation, scope: Scope) -> Value:
        values = self.values(expr.operands, scope)
        graph = self.graph
        graph.here = self.site or expr.span

        def make(*row: Value) -> Value:
            truths = [self.truth(v, e.span) for v, e in zip(row, expr.operands, strict=True)]
            holds, fails = [t.holds for t in truths], [t.fails for t in truths]
            if expr.operator == "not":
                return self.simple(Truth(fails[0], holds[0]))
            if expr.operator == "and":
                return self.simple(Truth(graph.all_of(holds), graph.any_of(fails)))
            return self.simple(Truth(graph.any_of(holds), graph.all_of(fails)))

        certain = self.each(make, *values)
        return certain

    def simple(self, truth: Truth) -> Value:
        """A node where the condition is never missing: one of `holds`, `fails` always is the case."""
        if truth.fails is self.graph.negation(truth.holds):
            return truth.holds
        known = self.graph.either(truth.holds, truth.fails)
        return truth.holds if known.constant == 1 else truth

    def comparison(self, expr: Operation, scope: Scope) -> Value:
        left, right = expr.operands
        symbolic = self.symbol_comparison(expr, scope)
        if symbolic is not None:
            return symbolic
        values = self.values((left, right), scope)
        self.graph.here = self.site or expr.span
        return self.numbers(lambda a, b: self.compared(expr.operator, a, b), values, (left, right))

    def compared(self, operator: str, a: Node, b: Node) -> Value:
        graph = self.graph
        holds = graph.compare(operator, a, b)
        if not a.domain.missing and not b.domain.missing:
            return holds
        return Truth(holds, graph.compare(_OPPOSITE[operator], a, b))

    def symbol_comparison(self, expr: Operation, scope: Scope) -> Value | None:
        """`task == math`, where `math` is one of the names that `task` can be."""
        for subject, other in (expr.operands, expr.operands[::-1]):
            if not isinstance(subject, Name) or not (subject.text in self.declared.columns or subject.text in scope.parameters):
                continue
            node = self.value(subject, scope)
            if not isinstance(node, Node) or not node.domain.symbols:
                continue
            names = node.domain.symbols
            if expr.operator not in ("==", "!="):
                self.fail("not-a-number", f"`{subject.text}` holds names, which have no order", expr.span, help="compare it with `==` or `!=`")
            if not isinstance(other, Name):
                self.fail("not-a-name", f"`{subject.text}` is a name: {node.domain}", other.span, help=f"did you mean `{subject.text} == {names[0]}`?")
            if other.text not in names:
                known = self.value(other, scope) if self.knows(other.text) and other.text not in self.declared.damaged else None
                if isinstance(known, Node) and known.domain.symbols == names:
                    return self.compared(expr.operator, node, known)
                self.fail(
                    "unknown-symbol",
                    f"`{subject.text}` is never `{shorten(other.text)}`",
                    other.span,
                    labels=(Label(self.declared.columns[subject.text].domain_span, "what it can be"),) if subject.text in self.declared.columns else (),
                    help=did_you_mean(other.text, names),
                )
            return self.compared(expr.operator, node, self.graph.const(names.index(other.text)))
        return None

    def choice(self, expr: If, scope: Scope) -> Value:
        parts = (expr.condition, expr.then, expr.otherwise)
        condition, then, otherwise = self.values(parts, scope)
        self.graph.here = self.site or expr.span

        def make(c: Value, a: Value, b: Value) -> Node:
            holds = self.truth(c, expr.condition.span).holds
            then, otherwise = self.as_number(a, expr.then.span), self.as_number(b, expr.otherwise.span)
            if then.domain.symbols or otherwise.domain.symbols:
                self.fail("not-a-number", "names cannot be chosen between", expr.span)
            return self.graph.if_(holds, then, otherwise)

        return self.each(make, condition, then, otherwise)

    # Calls ---------------------------------------------------------------------------------------

    def function(self, name: str, scope: Scope) -> Definition | None:
        if not scope.prelude and name in self.declared.functions:
            return self.declared.functions[name]
        return prelude().functions.get(name)

    def unknown_function(self, name: Name, scope: Scope) -> None:
        known = [*FUNCTIONS, *prelude().functions, *([] if scope.prelude else self.declared.functions)]
        help = did_you_mean(name.text, known)
        if self.knows(name.text) or name.text in scope.parameters:
            help = f"`{name.text}` is a value; it takes no arguments"
        self.report.error("unknown-function", f"there is no function `{shorten(name.text)}`", name.span, help=help)

    def call(self, expr: Call, scope: Scope) -> Value:
        definition = self.function(expr.function.text, scope)
        if definition is not None:
            return self.inline_call(expr, definition, scope)
        if expr.function.text not in FUNCTIONS:
            self.unknown_function(expr.function, scope)
            for argument in (*expr.arguments, *(value for _, value in expr.keywords)):
                self.try_(lambda a=argument: self.names_in(a, frozenset(scope.parameters), scope))
            raise _Skip
        self.check_arguments(expr, FUNCTIONS[expr.function.text])
        return self.builtin(expr, scope)

    def inline_call(self, expr: Call, definition: Definition, scope: Scope) -> Value:
        """A definition with parameters, its body in the place of the call."""
        if definition.body is None:
            raise _Skip
        signature = definition.signature
        given = self.arguments(expr, [name for name, _ in signature.parameters], signature.span)
        home = Scope(definition.prelude)
        parameters: dict[str, Bound] = {}
        failed = False
        for name, default in signature.parameters:
            argument, where = (given[name], scope) if name in given else (default, home)
            if argument is None:
                self.fail(
                    "missing-argument", f"`{definition.name}` needs `{name}`", expr.span, help=f"write `{signature.span.text}`"
                )
            try:
                parameters[name] = Bound(self.value(argument, where), argument, where)
            except _Skip:
                failed = True
        if failed:
            raise _Skip
        key = ("call", definition.name, definition.prelude, tuple((b.value, b.expr if isinstance(b.expr, Name) else None) for b in parameters.values()))
        return self.once(key, expr.span, lambda: self.inlined(definition, Scope(definition.prelude, parameters), expr))

    def arguments(self, expr: Call, names: list[str], signature: Span) -> dict[str, Expr]:
        if len(expr.arguments) > len(names):
            extra = expr.arguments[len(names)]
            self.fail("too-many-arguments", f"`{expr.function.text}` takes {len(names)} argument{'s' * (len(names) != 1)}", extra.span, help=f"write `{signature.text}`")
        given = dict(zip(names, expr.arguments, strict=False))
        for name, value in expr.keywords:
            if name.text not in names:
                self.fail("unknown-argument", f"`{expr.function.text}` has no argument `{shorten(name.text)}`", name.span, help=did_you_mean(name.text, names, f"write `{signature.text}`"))
            if name.text in given:
                self.fail("duplicate-argument", f"`{name.text}` is given twice", name.span, help="keep one of them")
            given[name.text] = value
        return given

    def check_arguments(self, expr: Call, function: Function) -> None:
        name, count = expr.function.text, len(expr.arguments)
        shape = f"write `{function.signature(name)}`"
        seen: set[str] = set()
        for key, _ in expr.keywords:
            if key.text not in function.keywords:
                self.fail("unknown-argument", f"`{name}` has no argument `{shorten(key.text)}`", key.span, help=did_you_mean(key.text, function.keywords, shape))
            if key.text in seen:
                self.fail("duplicate-argument", f"`{key.text}` is given twice", key.span, help="keep one of them")
            seen.add(key.text)
        if count < function.required:
            self.fail("missing-argument", f"`{name}` needs {'an argument' if function.required == 1 else f'{function.required} arguments'}", expr.span, help=shape)
        if count > len(function.parameters) and not function.rest:
            self.fail("too-many-arguments", f"`{name}` takes {len(function.parameters)} argument{'s' * (len(function.parameters) != 1)}", expr.arguments[len(function.parameters)].span, help=shape)

    def builtin(self, expr: Call, scope: Scope) -> Value:
        name, arguments = expr.function.text, expr.arguments
        if name == "raw":
            return self.raw(expr, scope)
        graph = self.graph
        if name in ("min", "max") and len(arguments) > 1:
            if expr.keywords:
                self.fail("unknown-argument", f"`{name}` of several values has no `{expr.keywords[0][0].text}`", expr.keywords[0][0].span, help="with one argument it reduces")
            values = self.values(arguments, scope)
            graph.here = self.site or expr.span
            operator = "minimum" if name == "min" else "maximum"
            return self.numbers(lambda *nodes: _fold(lambda a, b: graph.apply(operator, a, b), nodes), values, arguments)
        if name in FUNCTIONS and "over" in FUNCTIONS[name].keywords:
            return self.reduction(expr, scope)
        values = self.values(arguments, scope)
        graph.here = self.site or expr.span
        if name in ONE_VALUE:
            return self.numbers(lambda x: self.elementwise(name, (x,), expr), values, arguments)
        if name == "clip":
            return self.numbers(lambda x, low, high: graph.apply("minimum", graph.apply("maximum", x, low), high), values, arguments)
        if name == "coalesce":
            return self.numbers(lambda *nodes: _fold(graph.coalesce, nodes), values, arguments)
        if name == "present":
            return self.each(lambda v: graph.present(self.as_number(v, expr.span)), *values)
        if name == "required":
            return self.each(lambda v: self.required(self.as_number(v, expr.span)), *values)
        raise AssertionError(f"`{name}` is declared but means nothing")

    def required(self, x: Node) -> Node:
        if not x.domain.missing:
            return x
        return self.graph.node("required", (x,), (), x.level, x.domain.present())

    def raw(self, expr: Call, scope: Scope) -> Value:
        """What was measured, by the name of a signal or component."""
        (argument,) = expr.arguments
        while isinstance(argument, Name) and argument.text in scope.parameters:
            bound = scope.parameters[argument.text]
            argument, scope = bound.expr, bound.scope
        if isinstance(argument, Name) and argument.text == "rewards" and not self.names_measured():
            derived = next(n for n in self.declared.components if n not in self.declared.columns)
            self.fail("not-measured", f"`{derived}` is derived, so `rewards` has no raw values", expr.span)
        if isinstance(argument, Name) and argument.text == "rewards":
            return Bundle(tuple(self.signal(name) for name in self.declared.components))
        if not isinstance(argument, Name):
            self.fail("not-a-name", "`raw` takes the name of a signal or component", argument.span, help="write `raw(name)`")
        name = argument.text
        if name in self.declared.damaged:
            raise _Skip
        if name not in self.declared.columns:
            known = self.declared.columns
            if name in self.declared.components:
                self.fail("not-measured", f"`{name}` is derived: nothing was measured for it", argument.span, help="use it without `raw`")
            self.fail("unknown-name", f"nothing called `{shorten(name)}` is measured", argument.span, help=did_you_mean(name, known))
        return self.signal(name)

    def names_measured(self) -> bool:
        return all(name in self.declared.columns for name in self.declared.components)

    # Reductions ----------------------------------------------------------------------------------

    def reduction(self, expr: Call, scope: Scope) -> Value:
        name = expr.function.text
        keywords = {key.text: value for key, value in expr.keywords}
        exprs = (expr.arguments[0], *(keywords[k] for k in ("where", "by") if k in keywords))
        x, *rest = self.values(exprs, scope)
        where: Value = rest.pop(0) if "where" in keywords else self.graph.const(1)
        by: Value | None = rest.pop(0) if "by" in keywords else None
        axis = "group"
        if "over" in keywords:
            chosen = keywords["over"]
            over = self.value(chosen, scope)
            if not isinstance(over, Axis):
                self.fail("not-an-axis", "`over` takes an axis", chosen.span, help="`group`, `batch` or `components`")
            axis = over.name
        parameter = self.parameter(expr, keywords, scope)
        self.graph.here = self.site or expr.span
        if axis == "components":
            if by is not None and not (isinstance(by, Node) and by.constant is not None):
                self.fail("by-components", "`by` subdivides groups or the batch, not components", keywords["by"].span)
            return self.over_components(expr, name, x, where, parameter)
        level = Level.GROUP if axis == "group" else Level.BATCH
        if by is not None:
            by = self.as_number(by, keywords["by"].span) if not isinstance(by, Bundle) else self.fail("bundle-left-over", "`by` takes one signal", keywords["by"].span)
            by = None if by.constant is not None else by
        return self.each(lambda v, w: self.reduced(expr, name, v, w, by, level, parameter), x, where)

    def parameter(self, expr: Call, keywords: dict[str, Expr], scope: Scope):
        """The divisor of `std` and `var`, the `q` of `quantile`: constants."""
        name = expr.function.text
        if name in ("std", "var"):
            if "ddof" not in keywords:
                return self.declared.ddof
            found = self.number(keywords["ddof"], scope).constant
            if found not in (0, 1):
                self.fail("numerics", "`ddof` is 0 or 1: the count less `ddof` divides the variance", keywords["ddof"].span)
            return found
        if name == "quantile":
            found = self.number(expr.arguments[1], scope).constant
            if found is None or not 0 <= found <= 1:
                self.fail("not-a-constant", "`q` is a constant from 0 to 1", expr.arguments[1].span)
            return found
        return None

    def reduced(self, expr: Call, name: str, value: Value, where: Value, by: Node | None, over: Level, parameter) -> Node:
        graph, text = self.graph, shorten(expr.arguments[0].span.text)
        mask = self.truth(where, expr.span).holds
        if name in TAKES_CONDITIONS:
            truth = self.truth(value, expr.arguments[0].span)
            known = graph.either(truth.holds, truth.fails)
            mask = graph.both(mask, known)  # a missing condition takes no part
            x = truth.holds
        else:
            x = self.as_number(value, expr.arguments[0].span)
            if x.domain.symbols and name != "count":
                self.fail("not-a-number", f"`{text}` holds names, which cannot be computed with", expr.arguments[0].span)
        needed = Level.ROLLOUT if over is Level.GROUP else Level.GROUP
        if x.level < needed:
            have = "one value for the batch" if x.level is Level.BATCH else "one value for each group"
            spelling = f"`{text}` alone is that value already"
            if x.level is Level.GROUP:
                spelling = f"did you mean `{name}({text}, over=batch)`?"
            self.fail("wrong-level", f"`{text}` is {have}; there is nothing to reduce over the {over}", expr.span, help=spelling)
        if name == "rank" and over is Level.BATCH and x.level is Level.GROUP:
            x = graph.spread(x)
        if mask.level > x.level:
            self.fail("wrong-level", "`where` differs within what is one value", expr.span, help="reduce the condition first: `any(...)`")
        if over is Level.BATCH and self.keep is not None:
            mask = graph.both(mask, self.keep)
        if by is not None and by.level > x.level:
            self.fail("wrong-level", "`by` differs within what is one value", expr.span)
        return graph.reduce(name, x, mask, by, over, parameter)

    def over_components(self, expr: Call, name: str, value: Value, where: Value, parameter) -> Node:
        """A reduction over the components axis, written out: the components are known."""
        graph, text = self.graph, shorten(expr.arguments[0].span.text)
        if not isinstance(value, Bundle):
            self.fail("wrong-level", f"`{text}` is not one value for each component", expr.span, help="leave `over=components` out, or use `rewards` or `weights`")
        if name in ("quantile", "rank"):
            self.fail("not-yet", f"`{name}` over components is not known", expr.span)
        span = expr.arguments[0].span
        wheres = where.values if isinstance(where, Bundle) else (where,) * len(value.values)
        masks = [self.truth(w, expr.span).holds for w in wheres]
        if name in TAKES_CONDITIONS:
            truths = [self.truth(v, span) for v in value.values]
            if name == "any":
                return graph.any_of([graph.both(m, t.holds) for m, t in zip(masks, truths, strict=True)])
            return graph.all_of([graph.either(graph.negation(m), graph.negation(t.fails)) for m, t in zip(masks, truths, strict=True)])
        nodes = [self.as_number(v, span) for v in value.values]
        nodes = [graph.if_(m, x, graph.missing()) for m, x in zip(masks, nodes, strict=True)]
        zero = graph.const(0)
        count = _fold(lambda a, b: graph.apply("+", a, b), [graph.present(x) for x in nodes])
        summed = graph.sum_components(nodes)
        if name == "sum":
            return graph.coalesce(summed, zero) if summed.op != "sum_components" or all(m.constant != 1 for m in masks) else summed
        if name == "count":
            return count
        if name in ("min", "max"):
            operator = "minimum" if name == "min" else "maximum"
            return _fold(lambda a, b: graph.coalesce(graph.apply(operator, a, b), graph.coalesce(a, b)), nodes)
        mean = graph.apply("/", summed, graph.apply("maximum", count, graph.const(1)))
        if name == "mean":
            return mean
        squares = [graph.apply("*", d, d) for d in (graph.apply("-", x, mean) for x in nodes)]
        over = graph.apply("-", count, graph.const(parameter))
        several = graph.compare(">", count, graph.const(1))
        spread = graph.coalesce(graph.sum_components(squares), zero)
        variance = graph.if_(several, graph.apply("/", spread, graph.apply("maximum", over, graph.const(1))), zero)
        return variance if name == "var" else graph.apply("sqrt", variance)


_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def _fold(make: Callable[[Node, Node], Node], nodes) -> Node:
    result = nodes[0]
    for node in nodes[1:]:
        result = make(result, node)
    return result
