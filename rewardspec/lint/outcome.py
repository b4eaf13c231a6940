"""The outcome: the condition that makes a rollout right. Declared, else from a guarantee, else from names and gates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import TooLarge, walk
from rewardspec.language.declarations import Declarations
from rewardspec.lint.expressions import names_of, parts
from rewardspec.lint.words import words_of
from rewardspec.lower.lower import Lowering
from rewardspec.lower.program import Program
from rewardspec.lower.values import Skip
from rewardspec.ops.domain import Bound, Level
from rewardspec.ops.exact import Inexact
from rewardspec.syntax.expression import read
from rewardspec.syntax.tree import Call, Expr, If, Name, Number, Operation, format_expr, meaning
from rewardspec.text.diagnostics import Report
from rewardspec.text.numbers import format_number
from rewardspec.text.source import Source

_ABOUT_RIGHT = ("right_above_wrong", "wrong_gets_nothing", "silent_when_all_fail")

# Words in names of outcomes, the plainest first; and words in names that are never outcomes.
_RIGHT = [
    {"correct", "correctness", "outcome", "success", "successful", "solved", "accuracy", "acc", "exact"},
    {"verifier", "verified", "right", "pass", "passed", "passes", "answer", "answers"},
]
_NOT_RIGHT = {"format", "formatted", "formatting", "tag", "tags", "tagged", "xml", "json", "box", "boxed", "style"}
_NOT_RIGHT |= {"length", "len", "lengths", "token", "tokens", "words", "chars", "short", "long", "brief", "concise"}
_NOT_RIGHT |= {"present", "given", "parsed", "parses", "valid", "closed", "think", "thinking", "reasoning", "language"}
_NOT_RIGHT |= {"wrong", "incorrect", "error", "errors", "fail", "fails", "failed", "bad", "no", "not", "penalty"}
_NOT_RIGHT |= {"rate"}
# If another component has one of these words, `accuracy` is one criterion of a rubric.
_CRITERIA = {
    "criterion",
    "criteria",
    "rubric",
    "completeness",
    "complete",
    "clarity",
    "clear",
    "helpful",
    "helpfulness",
}
_CRITERIA |= {"harmless", "harmlessness", "safe", "safety", "honest", "honesty", "relevance", "relevant", "coherence"}
_CRITERIA |= {"coherent", "depth", "tone", "fluency", "fluent", "communication", "awareness", "instruction", "empathy"}
_CRITERIA |= {
    "creativity",
    "engagement",
    "factuality",
    "groundedness",
    "grounded",
    "readability",
    "politeness",
    "polite",
}
_CRITERIA |= {
    "faithfulness",
    "faithful",
    "consistency",
    "consistent",
    "quality",
    "usefulness",
    "useful",
    "persuasiveness",
}


@dataclass(frozen=True)
class Outcome:
    """A condition of rollout level under which a rollout is right.

    condition: as text. component: the only name that it reads, if that is a component. is_binary: the component has
    two values, right and wrong. reads: components and signals that it names. how: "declared", "guarantee" or "name".
    """

    condition: str
    expr: Expr
    how: str
    component: str | None
    is_binary: bool
    is_condition: bool  # the component is 1 for right rollouts and 0 for wrong ones
    reads: frozenset[str]

    @property
    def shown(self) -> str:
        return self.component if self.is_binary and self.component else self.condition

    @property
    def any(self) -> str:
        """The condition that a group has a right rollout, as text."""
        return f"any({self.component if self.is_condition else self.condition})"

    @property
    def beside(self) -> str:
        """The condition as an operand of `and`."""
        return f"({self.condition})" if isinstance(self.expr, If) or _is_or(self.expr) else self.condition

    @property
    def guarantee(self) -> str:
        """A guarantee for `verify`, as text."""
        if self.how == "declared":
            return "right_above_wrong()"
        return f"right_above_wrong({self.component if self.is_condition else self.condition})"


def _is_or(expr: Expr) -> bool:
    return isinstance(expr, Operation) and expr.operator == "or"


def declared_outcome(declared: Declarations, program: Program) -> Outcome | None:
    """The outcome that a spec declares, or that its ready-made guarantees agree on; None without either."""
    if declared.outcome is not None:
        return _outcome(declared, program, declared.outcome, "declared")
    if any(name in declared.functions for name in _ABOUT_RIGHT):
        return None
    conditions = [e.arguments[0] for expr in declared.guarantees.values() for e in _calls(expr) if e.arguments]
    conditions += [
        v for expr in declared.guarantees.values() for e in _calls(expr) for key, v in e.keywords if key.text == "right"
    ]
    if not conditions or len({meaning(expr) for expr in conditions}) > 1:
        return None
    return _outcome(declared, program, conditions[0], "guarantee")


def _calls(expr: Expr) -> Iterator[Call]:
    for part in parts(expr):
        if isinstance(part, Call) and part.function.text in _ABOUT_RIGHT:
            yield part


def named_outcome(declared: Declarations, program: Program, gating: set[str]) -> Outcome | None:
    """The component of two values that is named like an outcome, or that gates others (`gating`).

    None if two components qualify, or if the names are the criteria of a rubric.
    """
    shaped = {c.name: c.shaped for c in program.components}
    two = [n for n, node in shaped.items() if node.domain.values is not None and len(node.domain.values) == 2]
    two = [name for name in two if not shaped[name].level.listed]
    name = most_like_an_outcome(declared, program, [n for n in two if _rises(program, n)], gating)
    if name is None:
        return None
    text = f"{name} >= {format_number(shaped[name].domain.hi)}"
    expr = read(Source("outcome", text), Report())
    return None if expr is None else _outcome(declared, program, expr, "name")


def most_like_an_outcome(declared: Declarations, program: Program, names: list[str], gating: set[str]) -> str | None:
    """The name that is most plainly an outcome; None if several are, or none is."""
    weights = {c.name: c.weight for c in program.components}
    ranks: dict[tuple[bool, bool, int, int], list[str]] = {}
    for name in names:
        words = words_of(name)
        if words & _NOT_RIGHT or declared.components[name].when is not None or weights[name].domain.lo < 0:
            continue
        plain = next((i for i, right in enumerate(_RIGHT) if words & right), len(_RIGHT))
        if plain < len(_RIGHT) and name not in gating and _is_criterion(declared, name):
            continue
        if name in gating or plain < len(_RIGHT):
            ranks.setdefault((plain == len(_RIGHT), name not in gating, plain, len(words)), []).append(name)
    best = ranks[min(ranks)] if ranks else []
    return best[0] if len(best) == 1 else None


def named_component(declared: Declarations, program: Program) -> str | None:
    """The component that is plainly named like an outcome, with any weight; None if several are, or none is."""
    found = []
    for component in (c for c in program.components if not c.shaped.level.listed):
        words = words_of(component.name)
        if words & _RIGHT[0] and not words & _NOT_RIGHT and not _is_criterion(declared, component.name):
            found.append(component.name)
    return found[0] if len(found) == 1 else None


def _is_criterion(declared: Declarations, name: str) -> bool:
    """Whether a component is one criterion of a rubric, or graded by a judge."""
    use = declared.uses.get(name)
    if use is not None and use.reward is not None and use.reward.name.startswith("judge."):
        return True
    others = set().union(*(words_of(other) for other in declared.components))
    return bool(others & _CRITERIA)


def _rises(program: Program, name: str) -> bool:
    """Whether a component of two values is never missing, and rises with its column."""
    node = next(c.shaped for c in program.components if c.name == name)
    column = next((n for n in walk([node]) if n.op == "column" and n.attributes[0] == name), None)
    if node.domain.missing or column is None:
        return not node.domain.missing
    try:
        first, last = GroupEvaluator(node, [column], {})([(column.domain.lo,), (column.domain.hi,)], {})
    except (Inexact, KeyError):
        return False
    return bool(first < last)


def _outcome(declared: Declarations, program: Program, expr: Expr, how: str) -> Outcome | None:
    """The outcome with a condition; None if the condition is constant."""
    lowering = Lowering(replace(declared, outcome=expr), Report())
    try:
        truth = lowering.right()
    except (Skip, TooLarge):
        return None
    if truth.holds.constant is not None:
        return None
    reads = frozenset(names_of(declared, expr))
    components = [name for name in reads if name in declared.components]
    component = components[0] if len(reads) == 1 and components else None
    node = next((c.shaped for c in program.components if c.name == component), None)
    condition = format_expr(expr)
    if component is None or node is None:
        return Outcome(condition, expr, how, component, False, False, reads)
    if isinstance(expr, Name):
        condition = f"{component} >= 1"
    domain = node.domain
    two = domain.values is not None and len(domain.values) == 2 and not domain.symbols
    is_binary = two and node.level is Level.ROLLOUT and _is_top(expr, component, domain.hi)
    return Outcome(condition, expr, how, component, is_binary, is_binary and domain.condition, reads)


def _is_top(expr: Expr, component: str, top: Bound) -> bool:
    """Whether a condition selects the greater of a component's two values: `c`, `c >= 1` or `c > 0` for 0 and 1."""
    match expr:
        case Name():
            return True
        case Operation(operator=(">=" | ">" | "=="), operands=(Name(text=text), limit)) if text == component:
            return isinstance(limit, Number) and (expr.operator != "==" or limit.value == top)
    return False
