"""Declarations of operators, and the tables that hold them.

`declare(Elementwise(name="softplus", ...))` is all that a new operator needs: the language calls it by its
`function`, exact arithmetic uses `exact`, and emitted modules use `torch`. The operators are declared in
`elementwise.py`, `functions.py`, `reductions.py`, `lists.py` and `structure.py`; `operators.py` has all of them.
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
    """Builds conditions from operands: `ir.graph.Graph`, whose nodes are `N`."""

    def const(self, value: int) -> N: ...
    def apply(self, name: str, *args: N) -> N: ...
    def compare(self, operator: str, a: N, b: N, asked: bool = True) -> N: ...
    def both(self, a: N, b: N) -> N: ...
    def either(self, a: N, b: N) -> N: ...
    def negation(self, a: N) -> N: ...
    def present(self, x: N) -> N: ...


class When(Enum):
    """The state of one operand in which another is evaluated."""

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
        parts += ["..."] * self.rest + [f"{k}=..." for k in self.keywords if k not in self.parameters]
        return f"{name}({', '.join(parts)})"


def of_one(about: str, example: str = "") -> Function:
    """A function of one value."""
    return Function(("x",), 1, about=about, example=example)


@dataclass(frozen=True)
class Undefined:
    """Where an operator is undefined, as `a / b` is where b is 0.

    possible: whether it can be undefined, given the domains of the operands.
    condition: from a `Builder` and the operands, the condition that a run checks.
    words: how the error names it: "`a / b` is a division by 0".
    """

    possible: Callable[..., bool]
    condition: Callable[..., Any]
    words: str


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The fields that every operator has.

    word: base of the variable name in an emitted module; empty for the operator's name.
    boolean: its values are conditions. conditions: the places of operands that are conditions.
    asked: place of an operand to the state of another in which it is evaluated: `if` evaluates its second where its
    first holds. Operands that are not listed are always evaluated.
    sums: it adds its operands, so they can cancel. chooses: its value is one of its last two operands.
    arithmetic: its torch source also works on Python numbers.
    real: its value can be other than a sum of roots, as `exp(1)`.
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
    """A value that is not computed: a constant, a column, `step`."""


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operator):
    """An operator whose value at a rollout depends only on its operands at that rollout.

    undecided: the value where some operand is UNKNOWN. By default UNKNOWN, or missing if an operand is missing.
    """

    undecided: Callable[[tuple[Any, ...]], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Elementwise(Pointwise):
    """An operator whose result is missing where an operand is: arithmetic, functions, comparisons, logic.

    exact: the value for present operands. Fraction, Surd or Real in, one of them out; floats in, floats out.
    domain: the domain of the results, from the domains of the present operands.
    torch: a format string for the operands' source. limit: the same where one operand is a Python number.
    precedence: as in Python, for parentheses. repeats: `a + b + c` needs none.
    hides_missing: torch can give a number where an operand is NaN, as `x ** 0`.
    opposite: of a comparison, its negation: `>=` for `<`.
    enclosure, normal_form: the operator on `flint.arb` balls, and on the forms of `ops/forms.py`.
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
    """An operator that can have a value where an operand is missing: `if`, `present`, `coalesce`.

    exact: the value from those of the operands, None for missing. No rule where the value depends on the whole batch.
    torch: a format string for the operands' source; empty where `emit/sources.py` writes it.
    """

    exact: Callable[[Sequence[Any]], Any] | None = None
    torch: str = ""
    precedence: int = CALL


@dataclass(frozen=True, kw_only=True)
class Reduction(Operator):
    """From the values of a group or the batch to one value, or to one for each of them (keeps_level).

    exact(values, parameter): the value for the present, selected values of one group; None if the result is missing.
    domain(x, empty): the domain of the result. x: of the operand. empty: whether no value may be selected.
    parameter: the name of its parameter in the kernel: `ddof`, `q`. decides: for `any` and `all`, the operand that
    decides the result alone. The kernel is `group_NAME` of `emit/runtime/statistics.py`.
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


@dataclass(frozen=True, kw_only=True)
class Scan(Operator):
    """From the items of a rollout's list to a value for each of them: `before`, `so_far`.

    exact(values, parameter): the values of all items, in order; None is missing. domain(x): of the result.
    The kernel is `list_NAME` of `emit/runtime/items.py`.
    """

    exact: Callable[..., Any]
    domain: Callable[[Domain], Domain]
    parameter: str = ""

    @property
    def kernel(self) -> str:
        return f"list_{self.name}"


OPERATORS: dict[str, Operator] = {}
ELEMENTWISE: dict[str, Elementwise] = {}
REDUCTIONS: dict[str, Reduction] = {}
SCANS: dict[str, Scan] = {}
FUNCTIONS: dict[str, Function] = {}  # all functions of the language that are not definitions


def declare(operator: Operator) -> None:
    assert operator.name not in OPERATORS, f"`{operator.name}` is declared twice"
    OPERATORS[operator.name] = operator
    if isinstance(operator, Elementwise):
        ELEMENTWISE[operator.name] = operator
    if isinstance(operator, Reduction):
        REDUCTIONS[operator.name] = operator
    if isinstance(operator, Scan):
        SCANS[operator.name] = operator
    if operator.function is not None:
        FUNCTIONS[operator.name] = operator.function


def withdraw(name: str) -> None:
    """Undo `declare`: for tests."""
    OPERATORS.pop(name)
    ELEMENTWISE.pop(name, None)
    REDUCTIONS.pop(name, None)
    SCANS.pop(name, None)
    FUNCTIONS.pop(name, None)
