"""The state of a lowering: the first argument of every function in this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar, Unpack

from rewardspec.ir.graph import Graph, Node, TooLarge
from rewardspec.language.declarations import Declarations
from rewardspec.language.prelude import prelude
from rewardspec.lower.values import Scope, Skip, Value
from rewardspec.ops.domain import TwoLists
from rewardspec.syntax.tree import Expr
from rewardspec.text.diagnostics import Report, Rest
from rewardspec.text.source import Span

DEEPEST = 120  # nesting of expressions and the definitions they use; well within Python's stack
MOST_STEPS = 50_000

P = ParamSpec("P")
Made = TypeVar("Made")
Meaning = Callable[["Context", Any, Scope], Value]  # the tree is of the class that is the key in the table


class Context:
    """The state while a spec is lowered: its declarations, the graph so far, and the current place in the text.

    meanings: for each class of tree, the function that returns its value. They are passed in because their modules
    import this one; they call each other through `value`.
    """

    def __init__(self, declared: Declarations, report: Report, meanings: Mapping[type[Expr], Meaning]):
        self.declared = declared
        self.prelude = prelude(declared.dialect)
        self.report = report
        self.meanings = meanings
        self.graph = Graph()
        self.user, self.own = Scope(prelude=False), Scope(prelude=True)
        self.keep: Node | None = None
        self.copies: Node | None = None
        self.advantage: Node | None = None
        self.never: list[
            tuple[Node, str, Span]
        ] = []  # nodes that are undefined for every rollout: errors if they are read
        self.site: Span | None = None  # the user's text where a definition is inlined
        self._done: dict[tuple[object, ...], object] = {}  # None if there is no value
        self._open: list[tuple[object, ...]] = []  # definitions and components being lowered, for cycles
        self._depth = 0
        self._steps = 0

    def value(self, expr: Expr, scope: Scope) -> Value:
        """The value of an expression. Raises Skip if it has none, with the reason in the report."""
        self._steps += 1
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                self.fail("too-deep", f"definitions and expressions are nested more than {DEEPEST} deep", expr.span)
            if self._steps > MOST_STEPS:
                raise TooLarge
            self.graph.here = self.site or expr.span
            return self.meanings[type(expr)](self, expr, scope)
        except TwoLists as found:
            one, other = found.levels
            self.fail(
                "two-lists",
                f"values of two lists meet here: one for each {one}, and one for each {other}",
                expr.span,
                help="reduce one of them to its rollout first: `mean(x, over=rollout)`",
            )
        finally:
            self._depth -= 1

    def values(self, exprs: Sequence[Expr], scope: Scope) -> list[Value]:
        """The values of several expressions. Raises Skip after reading all of them, so that all errors are reported."""
        found, failed = [], False
        for expr in exprs:
            try:
                found.append(self.value(expr, scope))
            except Skip:
                failed = True
        if failed:
            raise Skip
        return found

    def attempt(self, make: Callable[P, Made], *args: P.args, **kwargs: P.kwargs) -> Made | None:
        """The result of `make`; None if it raises Skip."""
        try:
            return make(*args, **kwargs)
        except Skip:
            return None

    def once(self, key: tuple[object, ...], span: Span, make: Callable[[], Made]) -> Made:
        """The result of `make`, called once for each key; a cycle through `key` is an error. key[1]: its name."""
        key = (*key, self.keep is not None)
        if key in self._done:
            found = self._done[key]
            if found is None:
                raise Skip
            return found  # type: ignore[return-value]  # a key is always made by the same function
        if key in self._open:
            names = [entry[1] for entry in self._open[self._open.index(key) :]] + [key[1]]
            self._done[key] = None
            shown = " -> ".join(f"`{name}`" for name in (names if len(names) < 8 else [*names[:6], "...", names[-1]]))
            self.fail("cycle", f"`{key[1]}` depends on itself: {shown}", span, help="break the cycle")
        self._open.append(key)
        try:
            self._done[key] = made = make()
            return made
        except Skip:
            self._done[key] = None
            raise
        finally:
            self._open.pop()

    def fail(self, code: str, message: str, span: Span, **rest: Unpack[Rest]) -> NoReturn:
        """Report an error, one inside the prelude at the user's text that uses it. Raises Skip."""
        self.report.error(code, message, self.site or span, **rest)
        raise Skip
