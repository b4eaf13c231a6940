"""Divisors: what is added to a spread before dividing by it, against the spreads that the declared values have."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import inf

from rewardspec.ir.exact import GroupEvaluator
from rewardspec.ir.graph import Node, walk
from rewardspec.ir.patterns import match_zscore
from rewardspec.lint.finding import Facts, finding
from rewardspec.lint.outcome import words_of
from rewardspec.ops.domain import Level
from rewardspec.ops.reductions import REDUCTIONS
from rewardspec.text.diagnostics import Diagnostic, Label
from rewardspec.text.numbers import format_number

SMALL = Fraction(1, 1000)  # what is added so that nothing is divided by 0
USUAL_EPS = Fraction(1, 10**6)
HUGE = 100
LARGEST = 3.4e38  # what float32 holds
MOST_ROWS = 32
COUNTS = {"length", "len", "tokens", "words", "chars", "bytes", "lines", "steps", "turns", "calls", "seconds", "count"}


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
    divisors = [n.args[1] for n in walk([facts.program.advantage]) if n.op == "/"]
    if not facts.divides_by_eps and all(_padded(divisor)[0] is None for divisor in divisors):
        return
    if facts.depends_on_batch("tiny-divisor"):
        return
    facts = facts.with_eps if facts.divides_by_eps else facts
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

    Leave it out (`numerics: {eps: 1e-6}`), or scale the values up (`scale: [0, 1]`). It follows from the formula,
    spread / (spread + eps).
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
            help="leave eps at 1e-6, or scale the values up: `scale: [0, 1]`"
            if eps > USUAL_EPS
            else "scale the values up: `scale: [0, 1]`",
        )
        return


def _uses_eps(facts: Facts) -> bool:
    """Whether the spec's own z-scores, in its own graph, have eps in their divisors."""
    found = (match_zscore(facts.program.graph, n) for n in walk([facts.program.advantage]))
    return any(z is not None and z.eps is not None and z.over is Level.GROUP for z in found)


@finding("one-unit-decides")
def one_unit_decides(facts: Facts) -> Iterator[Diagnostic]:
    """One token more or less has a full-size advantage.

    Two rollouts are alike in all else, and a count such as their length differs by one. The reward made of it hardly
    differs; but a z-score divides by what little spread there is, so the advantage is as large as that between right
    and wrong. Groups in which every answer is right, the more of them the better the policy is, are then learnt from
    as if the noise in their lengths meant something. Said of columns that count and have no end (`range: [0, .inf]`)
    alone: what is close together in a score, or on a scale of judgement, is for its author to say. It follows from the
    formula of the z-score.

    ```yaml
    signals: {tokens: {range: [0, .inf]}}
    components:
      correct: {values: [0, 1]}
      brief: {expr: "1 - min(tokens / 4000, 1)", when: correct >= 1}
    advantage: gdpo
    ```

    Count in steps that matter (`floor(tokens / 500) / 8`, `tokens <= 4000`); give the divisor a floor
    (`center(brief) / max(std(brief), 0.1)`); or do not divide (`dr_grpo`).
    """
    endless = [n.attributes[0] for n in facts.question.fine if _counts_without_end(facts, n)]
    if not endless or facts.question.step == "shift" or facts.depends_on_batch("one-unit-decides"):
        return
    facts = facts.with_eps  # which is a floor, too
    for at, node in enumerate(facts.question.fine):
        if node.attributes[0] not in endless:
            continue
        rows = [row for row in facts.question.states()[0] if row[at] is not None][:MOST_ROWS]
        rows += [(*row[:at], row[at] + far, *row[at + 1 :]) for row in rows for far in (100, 1000)]
        for row in sorted(rows, key=lambda row: -row[at]):  # a long answer shows it better than none at all
            more = (*row[:at], row[at] + 1, *row[at + 1 :])
            if row[at] not in node.domain or more[at] not in node.domain:
                continue
            columns = {name: points[0] for name, points in facts.question.coarse.items()}
            group = ((row, more), columns, facts.question.moments[0])
            advantages = _in_floats(facts, group)
            if None in advantages or not 1 <= abs(advantages[0] - advantages[1]) < LARGEST:
                continue
            name, changed = node.attributes[0], _changed(facts, group)
            if changed is not None:
                changed, apart = changed
                own = apart * _largest_weight(facts, changed) >= Fraction(1, 2)  # so that it is not the divisor
                listed = " and ".join(format_number(Fraction(r[at])) for r in (row, more))
                yield facts.warn(
                    "one-unit-decides",
                    f"{listed} `{name}`, alike in all else, get {advantages[0]:.3g} and {advantages[1]:.3g}",
                    facts.component_place(changed),
                    note=f"differs by {float(apart):.3g} for one of `{name}`"
                    if own
                    else f"hardly differs by one of `{name}`",
                    labels=() if own else (Label(facts.advantage_place(), "divides by what little spread there is"),),
                    help=f"count in steps that matter, `floor({name} / 500)`; or "
                    + (
                        f"hold it against a fixed length, `ramp({name}, start=0, end=4000)`"
                        if own
                        else "give the divisor a floor, `max(std(x), 0.1)`; or use `dr_grpo`"
                    ),
                )
                return


def _in_floats(facts: Facts, group: tuple) -> list[float | None]:
    """The advantages of a group, where eps leaves them no exact value."""
    members, columns, moment = group
    rows = [tuple(None if v is None else float(v) for v in row) for row in members]
    return GroupEvaluator(facts.question.root, list(facts.question.fine), moment, floats=True)(rows, columns)


def _counts_without_end(facts: Facts, column: Node) -> bool:
    """Whether a column counts something, as tokens are counted, and not how good a rollout is.

    What is rewarded as it was measured is a score, unless its name is that of a count.
    """
    name, domain = column.attributes[0], column.domain
    if domain.values is not None or domain.bounded or domain.lo == -inf:
        return False
    return name not in facts.declared.components or bool(words_of(name) & COUNTS)


def _changed(facts: Facts, group: tuple) -> tuple[str, Fraction] | None:
    """The component in which two rollouts differ, and by how much.

    None if one differs by over 1% of what it can, but for those that compare rollouts themselves (`minmax(tokens)`).
    """
    found = None
    for name, node in facts.shaped.items():
        values = facts.shaped_in(name, group)
        if values is None or None in values:
            return None
        apart = abs(values[0] - values[1])
        far = node.domain.hi - node.domain.lo if node.domain.bounded else max(map(abs, values))
        compares = any(n.op in REDUCTIONS for n in walk([node]))
        if apart and apart > far / 100 and not compares:
            return None
        found = (name, apart) if apart else found
    return found


def _largest_weight(facts: Facts, name: str) -> Fraction | float:
    weight = next(c.weight for c in facts.program.components if c.name == name)
    return max(abs(weight.domain.lo), abs(weight.domain.hi))
