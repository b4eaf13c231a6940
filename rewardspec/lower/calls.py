"""Calls: definitions inlined, the language's own functions, reductions."""

from __future__ import annotations

from rewardspec.ir.graph import Node
from rewardspec.language.declarations import AXES, Definition
from rewardspec.lower.expressions import Expressions
from rewardspec.lower.values import Axis, Bound, Bundle, Scope, Skip, Value, fold
from rewardspec.ops.domain import Level
from rewardspec.ops.functions import FUNCTIONS, Function
from rewardspec.ops.operators import ELEMENTWISE, REDUCTIONS, SPREADS
from rewardspec.syntax.foreign import ARGUMENTS, NAMES, way_out
from rewardspec.syntax.tree import Call, Expr, Name
from rewardspec.text.diagnostics import did_you_mean, shorten
from rewardspec.text.source import Span


class Calls(Expressions):
    """Everything that is called."""

    def function(self, name: str, scope: Scope) -> Definition | None:
        if not scope.prelude and name in self.declared.functions:
            return self.declared.functions[name]
        return self.prelude.functions.get(name)

    def unknown_function(self, name: Name, scope: Scope) -> None:
        if not scope.prelude and name.text in self.declared.damaged:
            return  # what is wrong with its definition has been said
        known = [*FUNCTIONS, *self.prelude.functions, *([] if scope.prelude else self.declared.functions)]
        help = way_out(name.text, known, NAMES)
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
            raise Skip
        self.check_arguments(expr, FUNCTIONS[expr.function.text])
        return self.builtin(expr, scope)

    def inline_call(self, expr: Call, definition: Definition, scope: Scope) -> Value:
        """A definition with parameters, its body in the place of the call."""
        if definition.body is None:
            raise Skip
        signature = definition.signature
        given = self.arguments(expr, [name for name, _ in signature.parameters], signature.span)
        home = Scope(definition.prelude)
        parameters: dict[str, Bound] = {}
        failed = False
        for name, default in signature.parameters:
            argument, where = (given[name], scope) if name in given else (default, home)
            if argument is None:
                self.fail(
                    "missing-argument",
                    f"`{definition.name}` needs `{name}`",
                    expr.span,
                    help=f"write `{signature.span.text}`",
                )
            outer = self.site
            if definition.prelude and name not in given:
                self.site = self.site or expr.span
            try:
                if isinstance(default, Name) and default.text in AXES:
                    self.check_axis(argument, where)
                parameters[name] = Bound(self.value(argument, where), argument, where)
            except Skip:
                failed = True
            finally:
                self.site = outer
        if failed:
            raise Skip
        key = (
            "call",
            definition.name,
            definition.prelude,
            tuple((b.value, b.expr if isinstance(b.expr, Name) else None) for b in parameters.values()),
        )
        return self.once(key, expr.span, lambda: self.inlined(definition, Scope(definition.prelude, parameters), expr))

    def arguments(self, expr: Call, names: list[str], signature: Span) -> dict[str, Expr]:
        if len(expr.arguments) > len(names):
            extra = expr.arguments[len(names)]
            self.fail(
                "too-many-arguments",
                f"`{expr.function.text}` takes {len(names)} argument{'s' * (len(names) != 1)}",
                extra.span,
                help=f"write `{signature.text}`",
            )
        given = dict(zip(names, expr.arguments, strict=False))
        for name, value in expr.keywords:
            if name.text not in names:
                self.fail(
                    "unknown-argument",
                    f"`{expr.function.text}` has no argument `{shorten(name.text)}`",
                    name.span,
                    help=way_out(name.text, names, ARGUMENTS, f"write `{signature.text}`"),
                )
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
                self.fail(
                    "unknown-argument",
                    f"`{name}` has no argument `{shorten(key.text)}`",
                    key.span,
                    help=way_out(key.text, function.keywords, ARGUMENTS, shape),
                )
            if key.text in seen:
                self.fail("duplicate-argument", f"`{key.text}` is given twice", key.span, help="keep one of them")
            seen.add(key.text)
        if count < function.required:
            self.fail(
                "missing-argument",
                f"`{name}` needs {'an argument' if function.required == 1 else f'{function.required} arguments'}",
                expr.span,
                help=shape,
            )
        if count > len(function.parameters) and not function.rest:
            self.fail(
                "too-many-arguments",
                f"`{name}` takes {len(function.parameters)} argument{'s' * (len(function.parameters) != 1)}",
                expr.arguments[len(function.parameters)].span,
                help=shape,
            )

    def builtin(self, expr: Call, scope: Scope) -> Value:
        name, arguments = expr.function.text, expr.arguments
        if name == "raw":
            return self.raw(expr, scope)
        graph = self.graph
        if name in ("min", "max") and len(arguments) > 1:
            if expr.keywords:
                self.fail(
                    "unknown-argument",
                    f"`{name}` of several values has no `{expr.keywords[0][0].text}`",
                    expr.keywords[0][0].span,
                    help="with one argument it reduces",
                )
            values = self.values(arguments, scope)
            graph.here = self.site or expr.span
            operator = "minimum" if name == "min" else "maximum"
            return self.numbers(lambda *nodes: fold(lambda a, b: graph.apply(operator, a, b), nodes), values, arguments)
        if name in FUNCTIONS and "over" in FUNCTIONS[name].keywords:
            return self.reduction(expr, scope)
        values = self.values(arguments, scope)
        graph.here = self.site or expr.span
        if name in ELEMENTWISE:
            return self.numbers(lambda *nodes: self.elementwise(name, nodes, expr), values, arguments)
        if name == "clip":
            return self.numbers(
                lambda x, low, high: graph.apply("minimum", graph.apply("maximum", x, low), high), values, arguments
            )
        if name == "coalesce":
            return self.numbers(lambda *nodes: fold(graph.coalesce, nodes), values, arguments)
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
            self.fail(
                "not-a-name", "`raw` takes the name of a signal or component", argument.span, help="write `raw(name)`"
            )
        name = argument.text
        if name in self.declared.damaged:
            raise Skip
        if name not in self.declared.columns:
            known = self.declared.columns
            if name in self.declared.components:
                self.fail(
                    "not-measured",
                    f"`{name}` is derived: nothing was measured for it",
                    argument.span,
                    help="use it without `raw`",
                )
            self.fail(
                "unknown-name",
                f"nothing called `{shorten(name)}` is measured",
                argument.span,
                help=did_you_mean(name, known),
            )
        return self.signal(name)

    def names_measured(self) -> bool:
        return all(name in self.declared.columns for name in self.declared.components)

    def check_axis(self, chosen: Expr, scope: Scope) -> None:
        """A name that stands where an axis is wanted, and is none."""
        if isinstance(chosen, Name) and chosen.text not in (*AXES, *scope.parameters):
            self.fail(
                "not-an-axis",
                f"`{shorten(chosen.text)}` is not an axis",
                chosen.span,
                help=did_you_mean(chosen.text, AXES, "the axes are `group`, `batch` and `components`"),
            )

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
            self.check_axis(chosen, scope)
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
            by = (
                self.as_number(by, keywords["by"].span)
                if not isinstance(by, Bundle)
                else self.fail("bundle-left-over", "`by` takes one signal", keywords["by"].span)
            )
            by = None if by.constant is not None else by
        return self.each(lambda v, w: self.reduced(expr, name, v, w, by, level, parameter), x, where)

    def parameter(self, expr: Call, keywords: dict[str, Expr], scope: Scope):
        """The divisor of `std` and `var`, the `q` of `quantile`: constants."""
        name = expr.function.text
        if name in SPREADS:
            if "ddof" not in keywords:
                return self.declared.ddof
            found = self.number(keywords["ddof"], scope).constant
            if found not in (0, 1):
                self.fail(
                    "numerics", "`ddof` is 0 or 1: the count less `ddof` divides the variance", keywords["ddof"].span
                )
            return found
        if name == "quantile":
            found = self.number(expr.arguments[1], scope).constant
            if found is None or not 0 <= found <= 1:
                self.fail("not-a-constant", "`q` is a constant from 0 to 1", expr.arguments[1].span)
            return found
        return None

    def reduced(
        self, expr: Call, name: str, value: Value, where: Value, by: Node | None, over: Level, parameter
    ) -> Node:
        graph, text = self.graph, shorten(expr.arguments[0].span.text)
        mask = self.truth(where, expr.span).holds
        if REDUCTIONS[name].boolean:
            truth = self.truth(value, expr.arguments[0].span)
            known = graph.either(truth.holds, truth.fails)
            mask = graph.both(mask, known)  # a missing condition takes no part
            x = truth.holds
        else:
            x = self.as_number(value, expr.arguments[0].span)
            if x.domain.symbols and name != "count":
                self.fail(
                    "not-a-number", f"`{text}` holds names, which cannot be computed with", expr.arguments[0].span
                )
        needed = Level.ROLLOUT if over is Level.GROUP else Level.GROUP
        if x.level < needed:
            have = "one value for the batch" if x.level is Level.BATCH else "one value for each group"
            spelling = f"`{text}` alone is that value already"
            if x.level is Level.GROUP:
                spelling = f"did you mean `{name}({text}, over=batch)`?"
            self.fail(
                "wrong-level",
                f"`{text}` is {have}; there is nothing to reduce over the {over}",
                expr.span,
                help=spelling,
            )
        if REDUCTIONS[name].keeps_level and over is Level.BATCH and x.level is Level.GROUP:
            x = graph.spread(x)
        if mask.level > x.level:
            self.fail(
                "wrong-level",
                "`where` differs within what is one value",
                expr.span,
                help="reduce the condition first: `any(...)`",
            )
        if over is Level.BATCH and self.keep is not None:
            mask = graph.both(mask, self.keep)
        if by is not None and by.level > x.level:
            self.fail("wrong-level", "`by` differs within what is one value", expr.span)
        return graph.reduce(name, x, mask, by, over, parameter)

    def over_components(self, expr: Call, name: str, value: Value, where: Value, parameter) -> Node:
        """A reduction over the components axis, written out: the components are known."""
        graph, text = self.graph, shorten(expr.arguments[0].span.text)
        if not isinstance(value, Bundle):
            self.fail(
                "wrong-level",
                f"`{text}` is not one value for each component",
                expr.span,
                help="leave `over=components` out, or use `rewards` or `weights`",
            )
        if name in ("quantile", "rank", "std_others"):
            self.fail("not-yet", f"`{name}` over components is not known", expr.span)
        span = expr.arguments[0].span
        wheres = where.values if isinstance(where, Bundle) else (where,) * len(value.values)
        masks = [self.truth(w, expr.span).holds for w in wheres]
        if REDUCTIONS[name].boolean:
            truths = [self.truth(v, span) for v in value.values]
            if name == "any":
                return graph.any_of([graph.both(m, t.holds) for m, t in zip(masks, truths, strict=True)])
            return graph.all_of(
                [graph.either(graph.negation(m), graph.negation(t.fails)) for m, t in zip(masks, truths, strict=True)]
            )
        nodes = [self.as_number(v, span) for v in value.values]
        nodes = [graph.if_(m, x, graph.missing()) for m, x in zip(masks, nodes, strict=True)]
        zero = graph.const(0)
        count = fold(lambda a, b: graph.apply("+", a, b), [graph.present(x) for x in nodes])
        summed = graph.sum_components(nodes)
        if name == "sum":
            return graph.coalesce(summed, zero)
        if name == "count":
            return count
        if name in ("min", "max"):
            operator = "minimum" if name == "min" else "maximum"
            return fold(lambda a, b: graph.coalesce(graph.apply(operator, a, b), graph.coalesce(a, b)), nodes)
        mean = graph.apply("/", summed, graph.apply("maximum", count, graph.const(1)))
        if name == "mean":
            return mean
        squares = [graph.apply("*", d, d) for d in (graph.apply("-", x, mean) for x in nodes)]
        over = graph.apply("-", count, graph.const(parameter))
        several = graph.compare(">", count, graph.const(1))
        spread = graph.coalesce(graph.sum_components(squares), zero)
        variance = graph.if_(several, graph.apply("/", spread, graph.apply("maximum", over, graph.const(1))), zero)
        return variance if name == "var" else graph.apply("sqrt", variance)
