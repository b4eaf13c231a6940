"""Names to values: parameters, definitions, signals, components, and what comes with the language."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf

from rewardspec.ir.graph import Graph, Node
from rewardspec.language.declarations import AXES, GIVEN, Declarations, Definition
from rewardspec.language.prelude import prelude
from rewardspec.lower.values import Axis, Bundle, Scope, Skip, Value
from rewardspec.ops.domain import Level, finite, interval
from rewardspec.ops.functions import FUNCTIONS
from rewardspec.syntax.foreign import NAMES, way_out
from rewardspec.syntax.tree import Call, Expr, If, Name, Operation
from rewardspec.text.diagnostics import Report, shorten
from rewardspec.text.source import Span

PI = Fraction(3141592653589793, 10**15)


class Names:
    """The state of a lowering, and the meaning of names.

    What an expression, a component or a weight comes to is in the classes that build on this one
    (`Expressions`, `Calls`, `Lowering`).
    """

    def __init__(self, declared: Declarations, report: Report):
        self.declared = declared
        self.prelude = prelude(declared.dialect)
        self.report = report
        self.graph = Graph()
        self.never: list[tuple[Node, str, Span]] = []  # what has no value, whatever the rollout, if it is asked for
        self.user, self.own = Scope(prelude=False), Scope(prelude=True)
        self.done: dict[tuple, Value | None] = {}
        self.open: list[tuple] = []  # definitions and components being lowered, for cycles
        self.keep: Node | None = None
        self.copies: Node | None = None
        self.advantage: Node | None = None
        self.depth = 0
        self.steps = 0
        self.site: Span | None = None  # the user's text that a definition is inlined at

    def try_(self, make: Callable[[], Node]) -> Node | None:
        try:
            return make()
        except Skip:
            return None

    def once(self, key: tuple, span: Span, make: Callable[[], Value]) -> Value:
        """What `make` gives, made once; a cycle through `key` is an error."""
        key = (*key, self.keep is not None)
        if key in self.done:
            found = self.done[key]
            if found is None:
                raise Skip
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
        except Skip:
            self.done[key] = None
            raise
        finally:
            self.open.pop()

    def knows(self, name: str) -> bool:
        return name in self.names(self.user)

    def names(self, scope: Scope) -> list[str]:
        own = (
            []
            if scope.prelude
            else [*self.declared.values, *self.declared.columns, *self.declared.components, *self.declared.damaged]
        )
        extra = ["advantage"] if self.advantage is not None else []
        return [*scope.parameters, *own, *self.prelude.values, *GIVEN, *extra]

    def name(self, expr: Name, scope: Scope) -> Value:
        name = expr.text
        if name in scope.parameters:
            return scope.parameters[name].value
        if name in AXES:
            return Axis(name)
        if not scope.prelude:
            if name in self.declared.damaged:
                raise Skip
            if name in self.declared.values:
                return self.definition(name, scope, expr)
            if name in self.declared.components:
                return self.component(name)
            if name in self.declared.columns:
                return self.signal(name)
        if name in self.prelude.values:
            return self.definition(name, self.own, expr)
        if scope.prelude and name in self.prelude.columns:  # what a dialect measures
            return self.signal(name)
        if scope.prelude and name == "outcome":  # what ready-made guarantees are about if they are not told
            if self.declared.outcome is None and "outcome" not in self.declared.place:
                self.fail(
                    "no-outcome",
                    "nothing says which rollouts are right",
                    expr.span,
                    help="declare it, `outcome: correct >= 1`, or give the condition as the argument",
                )
            return self.right()
        if name == "advantage" and self.advantage is not None:
            return self.advantage
        if name == "copies":
            if self.copies is None:
                self.fail(
                    "too-early",
                    "which groups stand in the batch is not known here yet",
                    expr.span,
                    help="`copies` can be used in `advantage:` and `guarantees:`",
                )
            return self.copies
        if name in GIVEN:
            return self.given(name)
        self.unknown(expr, scope)
        raise Skip

    def unknown(self, expr: Name, scope: Scope) -> None:
        name = expr.text
        known = self.names(scope)
        help = None
        if name.lower() in ("yes", "no", "true", "false", "on", "off"):
            help = f"`{name}` is a name here; write 1 or 0"
        elif name.lower() in ("none", "null", "nan"):
            help = "what was not measured is `missing`"
        elif name == "advantage":
            help = "`advantage` can be used in `guarantees:` only"
        elif name in FUNCTIONS:
            help = f"it is a function: `{FUNCTIONS[name].signature(name)}`"
        elif self.function(name, scope) is not None:
            help = f"it is a function: `{self.function(name, scope).signature.span.text}`"
        else:
            help = way_out(name, known, NAMES)
        if help is None:
            own = dict.fromkeys((*self.declared.columns, *self.declared.components))
            shown = ", ".join(f"`{name}`" for name in own)
            help = f"declare it under `signals:`, or define it; the spec has {shown}" if own else None
        self.report.error("unknown-name", f"there is no `{shorten(name)}`", self.site or expr.span, help=help)

    def definition(self, name: str, scope: Scope, expr: Name | None) -> Value:
        found = (self.prelude if scope.prelude else self.declared).values[name]
        if found.body is None:
            raise Skip

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

    def given(self, name: str) -> Value:
        graph, one = self.graph, Fraction(1)
        if name in self.declared.given:
            return graph.const(self.declared.given[name])
        match name:
            case "rewards" | "weights" if not self.declared.components:
                raise Skip  # that nothing is rewarded has been said
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

    def fail(self, code: str, message: str, span: Span, **rest) -> None:
        """Report at the user's text: an error inside the prelude stands where the prelude was used."""
        self.report.error(code, message, self.site or span, **rest)
        raise Skip

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
