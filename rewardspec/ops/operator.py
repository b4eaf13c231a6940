"""What a declaration of an operator says, and the tables that declarations go into.

`declare(Elementwise(name="softplus", ...))` is all there is to a new operator: the language calls it by its
`function`, exact arithmetic uses `exact`, and emitted modules its torch spelling. The operators themselves are in
`elementwise.py`, `reductions.py` and `structure.py`; `operators.py` has all of them, and the sets they fall into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from rewardspec.ops.domain import Domain

CALL = 9  # precedence of a call; Python's own for everything looser

N = TypeVar("N")


class Builder(Protocol[N]):
    """What makes conditions over operands: `ir.graph.Graph`, whose nodes are `N`."""

    def const(self, value: int) -> N: ...
    def apply(self, name: str, *args: N) -> N: ...
    def compare(self, operator: str, a: N, b: N, asked: bool = True) -> N: ...
    def both(self, a: N, b: N) -> N: ...
    def either(self, a: N, b: N) -> N: ...
    def negation(self, a: N) -> N: ...
    def present(self, x: N) -> N: ...


class When(Enum):
    """What has to be so of one operand for another to be asked for."""

    HOLDS = "holds"
    FAILS = "fails"
    MISSING = "missing"


@dataclass(frozen=True)
class Function:
    """How the language calls an operator.

    parameters: names of the arguments; the first `required` must be given. rest: any number may follow.
    about: one line for `rewardspec list` and the editor.
    example: a call and its value, which a test runs: `std([0, 1 | 1, 3]) = [0.7071, 1.4142]`. In `[ ]` are a value for
    each rollout, with `|` between groups; after `=` a value for each rollout, or one for each group.
    """

    parameters: tuple[str, ...]
    required: int
    keywords: tuple[str, ...] = ()
    rest: bool = False
    about: str = ""
    example: str = ""

    def signature(self, name: str) -> str:
        parts = [p if i < self.required else f"{p}=..." for i, p in enumerate(self.parameters)]
        parts += ["..."] * self.rest + [f"{k}=..." for k in self.keywords]
        return f"{name}({', '.join(parts)})"


def of_one(about: str, example: str = "") -> Function:
    """A function of one value."""
    return Function(("x",), 1, about=about, example=example)


@dataclass(frozen=True)
class Undefined:
    """Where an operator has no result.

    possible: whether that can be, given the domains of the operands.
    condition: what a run looks at, made by a `Builder` from the operands.
    words: what it is called where it happens, as in "`a / b` is a division by 0".
    """

    possible: Callable[..., bool]
    condition: Callable[..., Any]
    words: str


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What is declared of every operator.

    word: what the variable of its value is called in an emitted module; empty for the operator's own name.
    boolean: its values are conditions. conditions: the places of operands that are.
    asked: places of operands that are asked for only where another is so: `if` asks for its second where its first
    holds. Operands that are not in it are always asked for.
    sums: it adds up its operands, so that they can cancel. chooses: its value is one of its last two operands.
    arithmetic: its torch spelling computes with Python's numbers, too.
    real: of roots and rationals it makes a number that may be neither.
    """

    name: str
    function: Function | None = None
    word: str = ""
    boolean: bool = False
    conditions: tuple[int, ...] = ()
    asked: Mapping[int, tuple[When, int]] = field(default_factory=dict, hash=False)
    sums: bool = False
    chooses: bool = False
    arithmetic: bool = False
    real: bool = False
    undefined: Undefined | None = None


@dataclass(frozen=True, kw_only=True)
class Leaf(Operator):
    """A value that is not computed: a constant, a column, what comes with the call."""


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operator):
    """A value at a rollout from the operands' values at that rollout.

    undecided: the value for operands some of which are UNKNOWN; without it UNKNOWN, or missing where one is missing.
    """

    undecided: Callable[[tuple[Any, ...]], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Elementwise(Pointwise):
    """An operator whose result is missing where an operand is: arithmetic, functions, comparisons, logic.

    exact: Fraction, Surd or Real in, one of them out; floats in, floats out. Operands are present.
    domain: where the results lie, given where the (present) operands do.
    torch: a format string over the operands' source. limit: the same where one operand is a number in Python.
    precedence: Python's, for parentheses. repeats: `a + b + c` needs none.
    hides_missing: torch has a number where an operand is NaN, so that a missing value would not stay missing.
    opposite: of a comparison, the one that holds where it fails.
    enclosure, normal_form: how to compute with a `Real` that it made: functions of `flint.arb` balls, and of forms of
    `ops/forms.py`.
    """

    exact: Callable[..., Any]
    domain: Callable[..., Domain]
    torch: str
    limit: str = ""
    precedence: int = CALL
    repeats: bool = False
    hides_missing: bool = False
    opposite: str = ""
    enclosure: Callable[..., Any] | None = None
    normal_form: Callable[..., Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Structural(Pointwise):
    """An operator that picks, spreads or counts what is there, missing values included.

    exact: its value, given those of its operands, None where missing; None in place of a rule where a node of it
    means something only to the whole batch.
    torch: a format string over the operands' source; empty where there is more to it (`emit/sources.py`).
    """

    exact: Callable[[Sequence[Any]], Any] | None = None
    torch: str = ""
    precedence: int = CALL


@dataclass(frozen=True, kw_only=True)
class Reduction(Operator):
    """Many values of one axis to one, or (keeps_level) to one for each of them.

    exact(values, parameter): of the present, selected values of one group; None where the result is missing.
    domain(domain of what is reduced, whether there may be no value at all).
    parameter: what its kernel calls the second attribute of its nodes. decides: of `any` and `all`, the value of an
    operand that settles the result whatever the others are. The kernel is `group_NAME` of `emit/runtime/statistics.py`.
    """

    exact: Callable[..., Any]
    domain: Callable[[Domain, bool], Domain]
    missing_when_empty: bool = False
    keeps_level: bool = False
    parameter: str = ""
    decides: Fraction | None = None
    conditions: tuple[int, ...] = (1,)
    asked: Mapping[int, tuple[When, int]] = field(default_factory=lambda: {0: (When.HOLDS, 1)}, hash=False)

    @property
    def kernel(self) -> str:
        return f"group_{self.name}"


OPERATORS: dict[str, Operator] = {}
ELEMENTWISE: dict[str, Elementwise] = {}
REDUCTIONS: dict[str, Reduction] = {}
FUNCTIONS: dict[str, Function] = {}  # everything the language can call but definitions


def declare(operator: Operator) -> None:
    assert operator.name not in OPERATORS, f"`{operator.name}` is declared twice"
    OPERATORS[operator.name] = operator
    if isinstance(operator, Elementwise):
        ELEMENTWISE[operator.name] = operator
    if isinstance(operator, Reduction):
        REDUCTIONS[operator.name] = operator
    if operator.function is not None:
        FUNCTIONS[operator.name] = operator.function


def withdraw(name: str) -> None:
    """Undo `declare`: for tests."""
    OPERATORS.pop(name)
    ELEMENTWISE.pop(name, None)
    REDUCTIONS.pop(name, None)
    FUNCTIONS.pop(name, None)
