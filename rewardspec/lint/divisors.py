"""Divisors: what is added to a spread before dividing by it, against the spreads that the declared values have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from rewardspec.analysis.parts import without_batch
from rewardspec.analysis.verify import Question
from rewardspec.compiler import deep_stack
from rewardspec.diagnostics import Diagnostic, Label, Report
from rewardspec.ir.graph import Node, walk
from rewardspec.ir.lower import lower
from rewardspec.ir.patterns import match_zscore
from rewardspec.lint.finding import Facts, finding
from rewardspec.lint.schedule import own_expressions
from rewardspec.syntax.tree import Name
from rewardspec.types import Level, format_number

SMALL = Fraction(1, 1000)  # what is added so that nothing is divided by 0
HUGE = 100


@finding("tiny-divisor")
def tiny_divisor(facts: Facts) -> Iterator[Diagnostic]:
    """A group without spread is divided by almost nothing.

    What stands above a spread is not 0 where the spread is: `x / (std(x) + 1e-9)` of a group in which every `x` is 1
    is 1e9, a step that training does not survive. `zscore` is 0 there, and so is `(x - mean(x)) / (std(x) + 1e-9)`,
    to the last digit: without spread they have none above either. NeMo-RL#4161 is rounding noise times 4000, verl#6348
    another.

    ```yaml
    components: {correct: {values: [0, 1]}, style: {range: [0, 1]}}
    advantage: zscore(correct) + style / (std(style) + 1e-9)
    ```

    Write `zscore(style)`, or say what a group without spread has: `style / std(style) if std(style) > 0 else 0`.
    """
    if facts.looks_at_batch:
        return
    facts = _with_eps(facts)
    for node in (n for n in walk([facts.question.root]) if n.op == "/"):
        spread, added = _padded(node.args[1])
        if spread is None:
            continue
        for groups in facts.some_groups.values():
            for group in groups:
                flat, above, advantages = (facts.values(n, group) for n in (spread, node.args[0], facts.question.root))
                if flat is None or above is None or advantages is None or None in advantages:
                    continue
                at = next((i for i, (s, x) in enumerate(zip(flat, above, strict=True)) if s == 0 and x), None)
                if at is not None and abs(advantages[at]) >= HUGE:
                    yield facts.warn(
                        "tiny-divisor",
                        f"without spread {float(above[at]):.3g} is divided by {format_number(added)}: "
                        + facts.table(group, advantages),
                        facts.own_place(node),
                        help="`zscore` is 0 without spread; or say what is: `... if std(x) > 0 else 0`",
                    )
                    return


def _with_eps(facts: Facts) -> Facts:
    """The same spec with eps as it is, where its own text divides by it: small groups are looked at with eps 0."""
    if not any(isinstance(part, Name) and part.text == "eps" for _, part in own_expressions(facts)):
        return facts
    declared = replace(facts.declared, given={**facts.declared.given, "eps": facts.declared.eps})
    with deep_stack():
        program = lower(declared, Report())
    if program is None:
        return facts
    found = Facts(facts.spec, facts.run)
    root, _ = without_batch(program.graph, program.advantage)
    found.question = Question(facts.spec, program, root, facts.question.step)
    return found


def _padded(divisor: Node) -> tuple[Node | None, Fraction]:
    """The spread and the small number of `std(x) + 1e-9` or `max(std(x), 1e-9)`."""
    while divisor.op in ("spread", "sqrt"):
        divisor = divisor.args[0]
    if divisor.op not in ("+", "maximum"):
        return None, SMALL
    for one, other in (divisor.args, divisor.args[::-1]):
        added = one.constant
        if added is not None and 0 < added <= SMALL and any(n.op in ("std", "var") for n in walk([other])):
            return other, added
    return None, SMALL


@finding("eps-outweighs-spread")
def eps_outweighs_spread(facts: Facts) -> Iterator[Diagnostic]:
    """An eps that is larger than the spread it guards.

    `zscore` divides by the standard deviation plus eps. Where the declared values lie so close together that their
    deviation is below eps, eps decides: advantages are no longer of size 1, and rewards on a larger scale outweigh
    this one though each is said to be normalised. Dialects have 1e-4 (TRL), 1e-6 (verl), 1e-9 (OpenRLHF).

    ```yaml
    components: {correct: {values: [0, 1]}, tidy: {values: [0, 0.001]}}
    advantage: gdpo
    numerics: {eps: 0.01}                            # tidy's z-scores are 0.05 in place of 0.7
    ```

    Leave eps at 1e-6, or scale the values up (`scale: [0, 1]`).
    """
    eps = facts.declared.eps
    graph = facts.question.program.graph
    for node in walk([facts.question.root]):
        found = match_zscore(graph, node)
        if found is None or found.over is not Level.GROUP or not eps or not _uses_eps(facts):
            continue
        if any(n.domain.values is None for n in walk([found.x]) if n.op == "column"):
            continue
        std = next(n for n in walk([node.args[1].args[1]]) if n.op == "std")
        spreads = [
            (float(values[0]), group)
            for groups in facts.some_groups.values()
            for group in groups
            if (values := facts.values(std, group)) is not None and values[0]
        ]
        if not spreads or min(s for s, _ in spreads) >= eps:
            continue
        least = min(s for s, _ in spreads)
        numerics = facts.root_node.get("numerics")
        place = numerics.get("eps").span if numerics is not None and numerics.get("eps") is not None else None
        yield facts.warn(
            "eps-outweighs-spread",
            f"eps {format_number(eps)} is more than a spread of {least:.3g} that it is added to",
            place or facts.own_place(node),
            labels=(Label(facts.own_place(node), "normalised with it"),) if place is not None else (),
            help="leave eps at 1e-6, or scale the values up: `scale: [0, 1]`",
        )
        return


def _uses_eps(facts: Facts) -> bool:
    """Whether the spec's own z-scores, in its own graph, have eps in their divisors."""
    found = (match_zscore(facts.program.graph, n) for n in walk([facts.program.advantage]))
    return any(z is not None and z.eps is not None and z.over is Level.GROUP for z in found)
